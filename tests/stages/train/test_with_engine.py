"""Trainer and engine over one small decoder: what is trained reaches the engine, and how far apart the two are."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from flax import nnx

from flow import Context, testing
from stages.batches.pack import make_batch
from stages.batches.rows import RowFiller
from stages.checkpoint.store import load_model
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig
from stages.models.lora import LoraConfig, add_lora
from stages.models.transformer import Transformer
from stages.policy import Sample, SampleRequest
from stages.records import Batch, Segment, Weights
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.rollout.verify import compare_sync, verify_sync
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer

MODEL = ModelConfig(
    vocab_size=23, width=16, num_layers=1, num_heads=4, num_kv_heads=2, head_size=4, mlp_width=24, context_length=24
)
ENGINE = EngineConfig(slots=2, context_length=24, prefill_rows=2, prefill_chunk=8)
TRAINER = TrainerConfig(row_length=24, rows_per_microbatch=2, learning_rate=0.03)
PROMPT = np.arange(1, 7, dtype=np.int32)

pytestmark = pytest.mark.slow  # Each model compiles for both.


def decoder(lora: bool = False, dtype: str = "float32") -> Transformer:
    model = Transformer(MODEL.model_copy(update={"dtype": dtype}), nnx.Rngs(0))
    # Logits that spread over some nats: a policy that prefers nothing hides differences.
    model.embedding_VW[...] = model.embedding_VW[...] * 4
    if lora:
        add_lora(model, LoraConfig(rank=2, alpha=4.0))
    return model


def bits(tree: Any) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(at): np.asarray(leaf) for at, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def base_of(model: Transformer) -> dict[str, np.ndarray]:
    return {name: leaf for name, leaf in bits(nnx.state(model, nnx.Param)).items() if "lora_" not in name}


async def sampled(engine: Engine, turn: int = 0) -> list[Sample]:
    requests = [SampleRequest(PROMPT, 10, (), 1.0, (0, 0, member, 0, turn), f"{member}.{turn}") for member in range(4)]
    return await asyncio.gather(*map(engine.sample, requests))


def batch_of(samples: list[Sample]) -> Batch:
    """The samples with an advantage each, as the packer makes it of episodes."""
    segments = []
    for number, sample in enumerate(samples):
        before, mask = len(PROMPT), np.arange(len(PROMPT) + len(sample.ids)) >= len(PROMPT)
        segments.append(
            Segment(
                ids=np.concatenate([PROMPT, sample.ids]),
                mask=mask,
                logprobs=np.concatenate([np.full(before, np.nan, np.float32), sample.logprobs]),
                advantages=np.full(len(mask), 1.0 if number % 2 else -1.0, np.float32),
                versions=np.concatenate([np.full(before, -1, np.int32), sample.versions]),
            )
        )
    return make_batch(0, [(segment,) for segment in segments])


def context(rows: list[Any]) -> Context:
    return testing.context(node="trainer", report=rows.append)


def one_step(trainer: Trainer, batch: Batch) -> tuple[Weights, dict[str, Any]]:
    rows: list[Any] = []
    trainer.add(batch, context(rows))
    return trainer.finish(context(rows)), rows[0]


def running(
    model: Transformer,
    use: Callable[[Engine, Trainer], Awaitable[Any]],
    config: EngineConfig = ENGINE,
    **settings: Any,
) -> Any:
    async def main() -> Any:
        async with (
            Engine(model, config) as engine,
            Trainer(model, PolicyLoss(), TRAINER, **settings) as trainer,
        ):
            return await use(engine, trainer)

    return asyncio.run(main())


def test_a_step_with_adapters_changes_them_alone_and_the_engine_follows():
    """The engine's log-probabilities of version 1 are the trainer's again, though it was sent the adapters' bytes only."""
    model = decoder(lora=True)
    before, adapters = base_of(model), bits(nnx.state(model, nnx.LoRAParam))

    async def use(engine: Engine, trainer: Trainer):
        weights, first = one_step(trainer, batch_of(await sampled(engine)))
        base = {name: leaf for name, leaf in bits(engine.parameters).items() if "lora_" not in name}
        held = [leaf for at, leaf in jax.tree_util.tree_leaves_with_path(engine.parameters) if "lora_" not in str(at)]
        await engine.load(weights, 1)
        kept = [leaf for at, leaf in jax.tree_util.tree_leaves_with_path(engine.parameters) if "lora_" not in str(at)]
        assert all(ours is theirs for ours, theirs in zip(held, kept, strict=True))
        _, second = one_step(trainer, batch_of(await sampled(engine, turn=1)))
        return weights, first, second, base, engine.statistics().loaded_bytes

    weights, first, second, base, loaded_bytes = running(model, use)
    assert {name: leaf.tobytes() for name, leaf in base.items()} == {name: leaf.tobytes() for name, leaf in before.items()}
    assert {name: leaf.tobytes() for name, leaf in base_of(model).items()} == {n: leaf.tobytes() for n, leaf in before.items()}
    new = bits(weights.parameters)
    assert new.keys() == adapters.keys()
    # The first matrix has no gradient while the second is zero.
    assert all((new[name] != adapters[name]).any() for name in new if "lora_up" in name)
    assert loaded_bytes == sum(leaf.nbytes for leaf in adapters.values())
    assert first["engine_gap_max"] < 1e-5
    assert second["engine_gap_max"] < 1e-5
    assert second["logprob_gap"] == pytest.approx(second["engine_gap"], rel=1e-3)


def test_an_engine_without_the_new_adapters_is_far_from_the_trainer():
    """The figure above would notice: without the load, tokens are labelled with a version they were not sampled by."""

    async def use(engine: Engine, trainer: Trainer):
        one_step(trainer, batch_of(await sampled(engine)))
        stale = batch_of(await sampled(engine, turn=1))
        mislabelled = make_batch(
            0,
            [(msgspec.structs.replace(one, versions=np.where(one.mask, 1, -1).astype(np.int32)),) for one in stale.segments],
        )
        return one_step(trainer, mislabelled)[1]

    assert running(decoder(lora=True), use)["engine_gap_max"] > 1e-3


def test_nothing_of_the_frozen_base_is_in_optimizer_or_commit_and_a_run_resumes_from_both(
    tmp_path: Path, keep: Callable[..., None], take_up: Callable[..., None]
):
    async def use(engine: Engine, trainer: Trainer):
        batch = batch_of(await sampled(engine))
        one_step(trainer, batch)
        return batch, one_step(trainer, batch)[0], one_step(trainer, batch)[0]

    batch, second, third = running(decoder(lora=True), use)

    async def half(engine: Engine, trainer: Trainer):
        for _ in range(2):
            one_step(trainer, batch)
        keep(trainer, tmp_path / "two")

    running(decoder(lora=True), half)
    saved = Trainer(decoder(lora=True), PolicyLoss(), TRAINER)
    saved.open()
    take_up(saved, tmp_path / "two")
    moments = [leaf.size for leaf in jax.tree.leaves(saved._learner.state) if leaf.ndim > 0]
    assert sum(moments) == 2 * sum(leaf.size for leaf in jax.tree.leaves(second.parameters))
    resumed, _ = one_step(saved, batch)
    for ours, theirs in zip(jax.tree.leaves(resumed.parameters), jax.tree.leaves(third.parameters), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    fresh = decoder(lora=True)
    base = base_of(fresh)
    load_model(fresh, tmp_path / "two")
    assert bits(nnx.state(fresh, nnx.LoRAParam)).keys() == bits(second.parameters).keys()
    for name, leaf in bits(second.parameters).items():
        np.testing.assert_array_equal(bits(nnx.state(fresh, nnx.LoRAParam))[name], leaf)
    for name, leaf in base_of(fresh).items():
        np.testing.assert_array_equal(leaf, base[name])


@pytest.mark.parametrize(("dtype", "bound"), [(None, 1e-5), ("bfloat16", 0.1)])
def test_engine_and_trainer_differ_by_what_the_engines_type_rounds(dtype, bound):
    """S80: eight bits of mantissa leave logits of up to about 4 off by some hundredths; the same type by the order of sums."""

    async def use(engine: Engine, trainer: Trainer):
        weights, row = one_step(trainer, batch_of(await sampled(engine)))
        await engine.load(weights, 1)
        held = {str(leaf.dtype) for leaf in jax.tree.leaves(engine.parameters)}
        report = await verify_sync(engine, weights.parameters)
        return row, one_step(trainer, batch_of(await sampled(engine, turn=1)))[1], held, report

    first, second, held, report = running(decoder(), use, ENGINE.model_copy(update={"dtype": dtype}))
    for row in (first, second):
        assert 0 < row["engine_gap"] <= row["engine_gap_max"] < bound
    if dtype is not None:
        assert first["engine_gap"] > 1e-4
    assert held == {dtype or "float32"}
    assert report.differing == ()


def test_the_gap_is_of_tokens_that_the_version_being_trained_sampled():
    """Others differ because the policy changed, which is ``logprob_gap``; without any, there is no figure."""
    random = np.random.default_rng(0)
    sample = Sample(
        random.integers(0, 23, 10).astype(np.int32), np.full(10, -3.0, np.float32), np.zeros(10, np.int32), "length"
    )  # fmt: skip
    half = msgspec.structs.replace(
        sample, versions=np.array([0] * 5 + [7] * 5, np.int32), logprobs=-np.arange(10, dtype=np.float32)
    )
    trainer = Trainer(decoder(), PolicyLoss(), TRAINER)
    trainer.open()
    logprobs = reference(trainer.weights.parameters, batch_of([half, half]))
    _, row = one_step(trainer, batch_of([half, half]))
    apart = np.abs(logprobs[6:11] - half.logprobs[:5])
    np.testing.assert_allclose([row["engine_gap"], row["engine_gap_max"]], [apart.mean(), apart.max()], rtol=1e-5)
    _, later = one_step(trainer, batch_of([sample, sample]))
    assert (later["engine_gap"], later["engine_gap_max"]) == (None, None)
    assert later["logprob_gap"] > 0


def reference(parameters: Any, batch: Batch) -> np.ndarray:
    """Log-probabilities of the first row by a plain forward pass."""
    graphdef = nnx.split(decoder(), nnx.Param)[0]
    filler = RowFiller([(1, 24)])
    rows, *_ = filler.add(batch.units) + filler.flush()
    logits = nnx.merge(graphdef, parameters)(rows.ids, rows.positions, rows.segments)
    logprobs = np.asarray(jax.nn.log_softmax(logits))[0]
    return np.array([0.0] + [logprobs[t - 1, rows.ids[0, t]] for t in range(1, 24)])


def test_bfloat16_parameters_are_trained_in_float32_and_published_rounded(
    tmp_path: Path, keep: Callable[..., None], take_up: Callable[..., None]
):
    """Steps of 1e-4 of numbers near 1, which bfloat16 cannot tell apart, add up; a resumed run has lost none of them."""

    def opened() -> Trainer:
        config = TRAINER.model_copy(update={"learning_rate": 1e-4})
        trainer = Trainer(decoder(dtype="bfloat16"), PolicyLoss(), config)
        trainer.open()
        return trainer

    sample = Sample(np.arange(10, dtype=np.int32), np.full(10, -3.0, np.float32), np.zeros(10, np.int32), "length")
    batch, trainer = batch_of([sample] * 3), opened()
    began = np.asarray(trainer.weights.parameters["final_norm_W"][...], np.float32)
    steps = [np.asarray(one_step(trainer, batch)[0].parameters["final_norm_W"][...]) for _ in range(45)]
    keep(trainer, tmp_path / "kept")
    assert str(steps[0].dtype) == "bfloat16"
    np.testing.assert_array_equal(steps[0].astype(np.float32), began)
    assert np.abs(steps[-1].astype(np.float32) - began).max() >= 2**-8
    resumed = opened()
    take_up(resumed, tmp_path / "kept")
    for ours, theirs in zip(
        jax.tree.leaves(resumed._learner.parameters), jax.tree.leaves(trainer._learner.parameters), strict=True
    ):
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, theirs)


def test_a_leaf_that_changed_after_it_was_published_is_found():
    """One bit of one number, or two numbers exchanged: named, and nothing else; what was never loaded is all named."""

    async def use(engine: Engine, trainer: Trainer):
        model = decoder()
        parameters = nnx.state(model, nnx.Param)
        same = compare_sync(engine, parameters).differing
        await engine.scramble(parameters)
        scrambled = compare_sync(engine, parameters)
        await engine.load(Weights(parameters), 1)
        arrived = compare_sync(engine, parameters)
        kernel = np.asarray(model.blocks[0].key.kernel_IO[...])
        flipped, exchanged = kernel.copy(), kernel.copy()
        flipped.view(np.uint32)[3, 5] ^= 1
        exchanged[0, 0], exchanged[1, 1] = kernel[1, 1], kernel[0, 0]
        found = []
        for changed in (flipped, exchanged):
            model.blocks[0].key.kernel_IO[...] = jax.numpy.asarray(changed)
            found.append(compare_sync(engine, nnx.state(model, nnx.Param)).differing)
        return same, scrambled, arrived, found

    same, scrambled, arrived, found = running(decoder(), use)
    assert same == ()
    assert len(scrambled.differing) == scrambled.num_leaves == 11
    assert arrived.differing == ()
    assert arrived.num_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(decoder(), nnx.Param)))
    assert found == [("blocks.0.key.kernel_IO",)] * 2

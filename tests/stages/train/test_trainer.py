import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from flax import nnx

from flow import Context, testing
from stages.batches.pack import make_batch
from stages.batches.rows import RowFiller, Rows
from stages.losses.policy import PolicyLoss
from stages.losses.supervised import SupervisedLoss
from stages.models.config import ModelConfig
from stages.models.logprobs import Head
from stages.models.transformer import Transformer
from stages.records import Batch, EpisodeRow, Segment, Status
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer

VOCAB, ROW = 11, 12

pytestmark = pytest.mark.slow  # Each setting compiles once, about a second.


class Bag(nnx.Module):
    """Predicts from the sum of what its segment held so far: two matrices, so that it compiles in no time."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embedding = nnx.Param(0.5 * jax.random.normal(rngs.params(), (VOCAB, 6)))
        self.projection = nnx.Param(0.5 * jax.random.normal(rngs.params(), (6, VOCAB)))

    def hidden(self, ids_BT: jax.Array, positions_BT: jax.Array, segments_BT: jax.Array, remat: bool = False) -> jax.Array:
        length = ids_BT.shape[1]
        seen_BTT = (segments_BT[:, :, None] == segments_BT[:, None, :]) & jnp.tril(jnp.ones((1, length, length), bool))
        weights_BTT = seen_BTT / (1.0 + positions_BT[:, :, None])
        return jnp.tanh(weights_BTT @ self.embedding[...][ids_BT])

    @property
    def head(self) -> Head:
        return Head(self.projection[...].T)

    def __call__(self, *packed: jax.Array) -> jax.Array:
        return self.hidden(*packed) @ self.projection[...]


def tiny(seed: int = 0) -> Bag:
    return Bag(nnx.Rngs(seed))


def decoder() -> Transformer:
    config = ModelConfig(
        vocab_size=VOCAB, width=8, num_layers=1, num_heads=2, num_kv_heads=1, head_size=4, mlp_width=16, context_length=ROW
    )
    return Transformer(config, nnx.Rngs(0))


def context(rows: list[Any], lag: int | None = None) -> Context:
    return testing.context(node="trainer", lag=lag, report=rows.append)


def segment(random: np.random.Generator, length: int = 6, advantage: float | None = None) -> Segment:
    mask = np.arange(length) >= 2
    logprobs = np.where(mask, -random.uniform(1.5, 3.0, length), np.nan).astype(np.float32)
    advantage = float(random.normal()) if advantage is None else advantage
    return Segment(random.integers(0, VOCAB, length).astype(np.int32), mask, np.full(length, advantage, np.float32), logprobs)


def batches(sizes: Sequence[int], seed: int = 0) -> list[Batch]:
    """One batch for each size, of that many segments."""
    random = np.random.default_rng(seed)
    return [batch_of(birth, [segment(random) for _ in range(size)]) for birth, size in enumerate(sizes)]


def batch_of(birth: int, segments: Sequence[Segment], **settings: Any) -> Batch:
    return make_batch(birth, [(segment,) for segment in segments], **settings)


def packed(batch: Batch, num_rows: int = 1) -> Rows:
    """A batch that fills so many rows."""
    filler = RowFiller([(num_rows, ROW)])
    (rows,) = filler.add(batch.units) + filler.flush()
    return rows


def config(**settings: Any) -> TrainerConfig:
    return TrainerConfig(**{"row_length": ROW, "rows_per_microbatch": 2, "learning_rate": 0.01, **settings})


def train(
    steps: Sequence[Sequence[Batch]],
    loss: Any = None,
    model: nnx.Module | None = None,
    temperature: float = 1.0,
    **settings: Any,
):
    """Run a trainer over steps of batches; gives the model, the rows and the parameters after each step."""
    model, rows, published = model or tiny(), [], []
    trainer = Trainer(model, loss or PolicyLoss(), config(**settings), temperature=temperature)
    trainer.open()
    for step in steps:
        for batch in step:
            trainer.add(batch, context(rows))
        published.append(trainer.finish(context(rows)).parameters)
    trainer.close()
    return model, rows, published


def flat(parameters: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(parameters)])


def test_a_step_equals_one_plain_call_with_each_segment_in_a_row_of_its_own():
    """S79: loss and gradient norm, over a real decoder: packed rows against a loss written out again, one segment a row."""
    random = np.random.default_rng(1)
    segments = [segment(random, length) for length in (6, 5, 12, 4, 3)]
    _, rows, _ = train([[batch_of(0, segments[:3]), batch_of(1, segments[3:])]], model=decoder())
    graphdef, parameters = nnx.split(decoder(), nnx.Param)
    alone = [batch_of(0, [s]) for s in segments]
    ids, at, one, mask, old, advantage = (
        np.concatenate([getattr(packed(batch), name) for batch in alone])
        for name in ("ids", "positions", "segments", "mask", "logprobs", "advantages")
    )

    @jax.jit
    @jax.value_and_grad
    def mean_loss(parameters: Any) -> jax.Array:
        logprobs = jax.nn.log_softmax(nnx.merge(graphdef, parameters)(ids, at, one))
        chosen = jnp.stack([logprobs[:, t - 1][jnp.arange(5), ids[:, t]] for t in range(1, ROW)], axis=1)
        ratio = jnp.exp(chosen - old[:, 1:])
        worse = jnp.minimum(ratio * advantage[:, 1:], jnp.clip(ratio, 0.8, 1.2) * advantage[:, 1:])
        return -(worse * mask[:, 1:]).sum() / mask.sum()

    loss, gradient = mean_loss(parameters)
    assert rows[0]["trained_tokens"] == mask.sum()
    np.testing.assert_allclose(rows[0]["loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(rows[0]["grad_norm"], np.linalg.norm(flat(gradient)), rtol=1e-4)


@pytest.mark.parametrize("cut", [1, 16])
def test_how_a_step_is_cut_into_micro_batches_changes_nothing_but_rounding(cut):
    """S77, S73: rows in micro-batches of 1 and of 16 (most of it filling) against 2."""
    steps = [batches([5, 1, 0, 8]), batches([2, 3], seed=1)]
    _, expected, parameters = train(steps, rows_per_microbatch=2)
    _, rows, others = train(steps, rows_per_microbatch=cut)
    for mine, other in zip(parameters, others, strict=True):
        np.testing.assert_allclose(flat(mine), flat(other), atol=2e-5)
    for name in ("loss", "grad_norm", "entropy", "kl", "logprob_gap", "clip_fraction", "trained_tokens"):
        np.testing.assert_allclose([row[name] for row in rows], [row[name] for row in expected], rtol=1e-4, err_msg=name)


def test_the_same_steps_give_the_same_bits():
    steps = [batches([5, 1, 4]), batches([2, 3], seed=1)]
    first, second = train(steps), train(steps)
    np.testing.assert_array_equal(flat(first[2][-1]), flat(second[2][-1]))


def test_nan_outside_the_mask_changes_nothing():
    """S75: a NaN log-probability or advantage at a masked position of the batch leaves the update as it was."""
    (clean,) = batches([3])
    dirty = batch_of(0, [msgspec.structs.replace(one, **spoilt(one)) for one in clean.segments])
    np.testing.assert_array_equal(flat(train([[clean]])[2][-1]), flat(train([[dirty]])[2][-1]))


def spoilt(one: Segment) -> dict[str, np.ndarray]:
    """Its float arrays with NaN where it has no target."""
    assert one.logprobs is not None
    assert one.advantages is not None
    return {
        "logprobs": np.where(one.mask, one.logprobs, np.float32(np.nan)),
        "advantages": np.where(one.mask, one.advantages, np.float32(np.nan)),
    }


def test_a_step_without_targets_changes_nothing_and_is_counted():
    """S76, S58: no division by zero, no decay, no momentum; the step after it trains as if it had not been."""
    steps = [batches([2]), batches([0, 0]), batches([3], seed=1)]
    _, rows, published = train(steps, weight_decay=0.1)
    np.testing.assert_array_equal(flat(published[0]), flat(published[1]))
    np.testing.assert_array_equal(flat(published[2]), flat(train([steps[0], steps[2]], weight_decay=0.1)[2][-1]))
    assert [row["skipped"] for row in rows] == [None, "no_targets", None]
    assert [row["skipped_total"] for row in rows] == [0, 1, 1]
    assert (rows[1]["loss"], rows[1]["grad_norm"], rows[1]["kl"], rows[1]["learning_rate"]) == (None, None, None, None)
    assert rows[1]["warning"] == "update skipped: no_targets"


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    (sound,) = batches([2])
    infinite = [msgspec.structs.replace(one, advantages=np.full(len(one.ids), np.inf, np.float32)) for one in sound.segments]
    broken = batch_of(0, infinite)
    steps = [[broken], batches([3], seed=1)]
    _, rows, published = train(steps)
    np.testing.assert_array_equal(flat(published[0]), flat(nnx.state(tiny(), nnx.Param)))
    np.testing.assert_array_equal(flat(published[1]), flat(train(steps[1:])[2][-1]))
    assert [row["skipped"] for row in rows] == ["not_finite", None]
    assert rows[0]["trained_tokens"] == 0


def test_leaving_out_members_without_advantage_changes_no_update():
    """A batch with rows for them, and one without, give the same parameters: the divisor counts their tokens either way."""
    random = np.random.default_rng(3)
    live, silent = segment(random), segment(random, advantage=0.0)
    rows = tuple(EpisodeRow(Status.FINISHED, reward, 4, 1, 0.1) for reward in (1.0, 0.5))
    with_it = batch_of(0, [live, silent], divisor=8.0, episodes=rows)
    without = batch_of(0, [live], divisor=8.0, episodes=rows)
    assert with_it.num_targets == 2 * without.num_targets
    np.testing.assert_allclose(flat(train([[with_it]])[2][-1]), flat(train([[without]])[2][-1]), atol=1e-6)


def test_published_parameters_stay_readable_while_later_steps_run():
    _, _, published = train([batches([2], seed) for seed in range(3)])
    values = [flat(parameters) for parameters in published]
    assert all(np.isfinite(value).all() for value in values)
    assert not np.array_equal(values[0], values[2])


def test_closing_writes_the_parameters_back_into_the_model():
    model, _, published = train([batches([3])])
    np.testing.assert_array_equal(flat(nnx.state(model, nnx.Param)), flat(published[-1]))
    assert not np.array_equal(flat(published[-1]), flat(nnx.state(tiny(), nnx.Param)))


def test_nothing_compiles_after_the_trainer_has_opened():
    """S91: counted by the compiler's own events, for steps of very different sizes."""
    compiled = []

    def count(name: str, duration: float, **_: Any) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(name)

    rows: list[dict[str, Any]] = []
    # A learning rate that no other test has, so that nothing is compiled yet.
    trainer = Trainer(tiny(), PolicyLoss(), config(learning_rate=0.0123))
    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        trainer.open()
        opened = len(compiled)
        for sizes in ([1], [4, 9, 0], [0], [30]):
            for batch in batches(sizes):
                trainer.add(batch, context(rows))
            trainer.finish(context(rows))
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    trainer.close()
    assert opened >= 2
    assert len(compiled) == opened
    assert [row["compilations"] for row in rows] == [2] * 4


def test_a_segment_longer_than_a_row_is_refused():
    trainer = Trainer(tiny(), PolicyLoss(), config())
    trainer.open()
    long = batch_of(0, [segment(np.random.default_rng(0), ROW + 1)])
    with pytest.raises(
        ValueError, match=r"segment: expected at most row_length=12 tokens, got 13; give Pack and Trainer the same"
    ):
        trainer.add(long, context([]))
    trainer.close()


def test_times_of_a_step_add_up():
    """A clock that ticks once a reading: what is not gradient, update or save is wait."""
    rows: list[dict[str, Any]] = []
    ticks = itertools.count()
    trainer = Trainer(tiny(), PolicyLoss(), config(), clock=lambda: float(next(ticks)))
    trainer.open()
    for batch in batches([4, 4]):
        trainer.add(batch, context(rows, lag=1))
    trainer.finish(context(rows))
    trainer.close()
    (row,) = rows
    assert row["microbatches"] == row["gradient_s"] == 2
    assert row["step_s"] == row["gradient_s"] + row["update_s"] + row["wait_s"]
    assert row["tokens_per_second"] == 48 / row["step_s"]
    assert row["lag_max"] == 1


def test_supervised_training_learns_a_fixed_sequence():
    """The loss falls from about log(vocabulary) to under 0.1, and greedy reading gives the sequence back."""
    ids = np.array([1, 7, 3, 9, 2, 5, 4], np.int32)
    demonstration = batch_of(0, [Segment(ids, np.arange(7) >= 1)])
    model, rows, _ = train([[demonstration]] * 200, SupervisedLoss(), learning_rate=0.03, rows_per_microbatch=1)
    assert abs(rows[0]["loss"] - math.log(VOCAB)) < 1.0
    assert rows[-1]["loss"] < 0.1
    assert rows[-1]["kl"] is None
    assert np.argmax(everything(model, packed(demonstration))[0, :6], axis=-1).tolist() == ids[1:].tolist()


def everything(model: nnx.Module, rows: Rows) -> np.ndarray:
    """float64 [R, L, V]: logits, by one jitted call."""
    graphdef, parameters = nnx.split(model)
    logits = jax.jit(lambda p: nnx.merge(graphdef, p)(rows.ids, rows.positions, rows.segments))(parameters)
    return np.asarray(logits, np.float64)


def scored(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Log-probabilities [R, L] of tokens, by the definition, NaN for the first of a row."""
    normal = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(normal[:, :-1], ids[:, 1:, None], axis=-1)[..., 0]
    return np.concatenate([np.full((len(ids), 1), np.nan), chosen], axis=1)


def test_policy_training_makes_rewarded_tokens_likelier():
    random = np.random.default_rng(5)
    batch = batch_of(0, [segment(random, ROW, advantage=1.0), segment(random, ROW, advantage=-1.0)])
    model, _, _ = train([[batch]] * 5)
    rows = packed(batch, 2)
    gain = scored(everything(model, rows), rows.ids) - scored(everything(tiny(), rows), rows.ids)
    assert gain[0][rows.mask[0]].sum() > 0.0 > gain[1][rows.mask[1]].sum()


@pytest.mark.parametrize(("temperature", "divisor"), [(0.6, 0.6), (0.0, 1.0)])
def test_behaviour_log_probabilities_at_the_sampling_temperature_give_a_ratio_of_one(temperature, divisor):
    """S80, S81: engine and trainer score one distribution; temperature 0 stands for 1 on both sides."""
    batch = batch_of(0, [segment(np.random.default_rng(6), ROW, advantage=1.0)])
    (one,) = batch.segments
    rows = packed(batch)
    behaviour = scored(everything(tiny(), rows) / divisor, rows.ids)[0].astype(np.float32)
    batch = batch_of(0, [msgspec.structs.replace(one, logprobs=behaviour)])
    _, rows, _ = train([[batch]], temperature=temperature)
    assert abs(rows[0]["ratio"] - 1.0) < 1e-5
    assert rows[0]["logprob_gap"] < 1e-5

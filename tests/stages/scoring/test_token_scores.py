"""Scores against plain forward passes of one row a member, written out with NumPy where they are log-probabilities."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from flax import nnx

from flow import Context, testing
from flow.testing import check_stage
from flow.trace import PerfettoWriter, read_trace, recording
from stages.batches.pack import make_batch
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig
from stages.models.critic import ActorCritic
from stages.models.lora import LoraConfig, add_lora, trained, without_adapters
from stages.models.mesh import MeshConfig, make_mesh
from stages.models.transformer import Transformer
from stages.records import Episode, Group, Row, Segment, Status, Task, Weights
from stages.scoring.config import ScoringConfig
from stages.scoring.stage import TokenScores
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer

VOCAB, LENGTH = 23, 24
MODEL = ModelConfig(
    vocab_size=VOCAB, width=16, num_layers=1, num_heads=4, num_kv_heads=2, head_size=4, mlp_width=24, context_length=LENGTH
)
CONFIG = ScoringConfig(row_length=LENGTH, rows_per_batch=2, split_last=1)
HOST = CONFIG.model_copy(update={"memory": "host"})

pytestmark = pytest.mark.slow  # Each model compiles once, about a second.


def decoder(seed: int = 0, lora: bool = False) -> Transformer:
    model = Transformer(MODEL, nnx.Rngs(seed))
    model.embedding_VW[...] = model.embedding_VW[...] * 4  # logits that spread over some nats
    if lora:
        add_lora(model, LoraConfig(rank=2))
    return model


def episode(random: np.random.Generator, member: int, length: int = 9, prompt: int = 3, **settings: Any) -> Episode:
    mask = (np.arange(length) >= prompt) & (np.arange(length) % 4 != 3)
    return Episode(
        **{
            "task": Task("t", "p"), "birth": 0, "member": member, "retry": 0, "turns": (), "messages": (), "reward": 1.0,
            "ids": random.integers(1, VOCAB - 1, length).astype(np.int32), "mask": mask, "status": Status.FINISHED,
            "logprobs": np.where(mask, -1.0, np.nan).astype(np.float32), "versions": np.where(mask, 0, -1).astype(np.int32),
            **settings,
        }
    )  # fmt: skip


def group(seed: int = 0, num: int = 5) -> Group:
    """Members of several lengths, the last in two rows."""
    random = np.random.default_rng(seed)
    members = [episode(random, member, 6 + 3 * member) for member in range(num - 1)]
    mask = np.arange(16) % 8 >= 4
    rows = (Row(0, 8), Row(8, 16, trained=False))
    return Group(0, (*members, episode(random, num - 1, 16, mask=mask, rows=rows)))


def opened(model: Any, fills: Any = "reference", config: ScoringConfig = CONFIG, **settings: Any) -> TokenScores:
    stage = TokenScores(model, fills, config, **settings)
    stage.open()
    return stage


def scored(stage: TokenScores, given: Group) -> tuple[Episode, ...]:
    return stage(given, testing.context(node="scores")).episodes


@nnx.jit
def forward(model: Transformer, ids: jax.Array, at: jax.Array, segments: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden = model.hidden(ids, at, segments)
    return hidden, model.logits(hidden)


def alone(model: Transformer, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Last vectors [T, W] and logits [T, V] of tokens in a row of their own, filled up to one length for all."""
    padded = np.zeros((1, LENGTH), np.int32)
    padded[0, : len(ids)] = ids
    at = np.arange(LENGTH, dtype=np.int32)[None]
    hidden, logits = forward(model, padded, at, (at < len(ids)).astype(np.int32))
    return np.asarray(hidden)[0, : len(ids)], np.asarray(logits, np.float64)[0, : len(ids)]


def plain(model: Transformer, given: Episode, temperature: float = 1.0) -> np.ndarray:
    """float32 [T]: each row read alone, in NumPy from its logits."""
    scores = np.full(len(given.ids), np.nan, np.float32)
    for row in given.rows or (Row(0, len(given.ids)),):
        ids = given.ids[row.start : row.stop]
        logits = alone(model, ids)[1] / temperature
        for t in range(1, len(ids)):
            if given.mask[row.start + t]:
                scores[row.start + t] = logits[t - 1, ids[t]] - np.log(np.exp(logits[t - 1]).sum())
    return scores


@pytest.mark.parametrize("fills", ["reference", "teacher"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_are_those_of_each_row_read_alone(fills, temperature):
    """S80: at the temperature of sampling, in all rows, NaN where nothing was sampled; five members in rows of two."""
    given, model = group(), decoder()
    stage = opened(model, fills, temperature=temperature)
    for before, after in zip(given.episodes, scored(stage, given), strict=True):
        np.testing.assert_allclose(getattr(after, fills), plain(model, before, temperature), atol=1e-5)
        assert getattr(after, fills).dtype == np.float32
        assert (after.status, after.reward) == (Status.FINISHED, 1.0)
    assert stage.num_compilations == 1


def test_a_reference_of_the_policy_itself_agrees_with_the_trainer_on_the_same_shapes():
    """What the trainer calls behaviour and what it computes are then one, by the largest gap."""
    given, model, rows = group(), decoder(), []
    episodes = scored(opened(model), given)
    segments = [
        (Segment(e.ids[r.start : r.stop], e.mask[r.start : r.stop], np.ones(r.stop - r.start, np.float32),
                 e.reference[r.start : r.stop], e.versions[r.start : r.stop]),)
        for e in episodes for r in e.rows or (Row(0, len(e.ids)),)
    ]  # fmt: skip
    trainer = Trainer(model, PolicyLoss(), TrainerConfig(row_length=LENGTH, rows_per_microbatch=2))
    trainer.open()
    context = testing.context(node="trainer", report=rows.append)
    trainer.add(make_batch(0, segments), context)
    trainer.finish(context)
    assert rows[0]["engine_gap_max"] < 1e-5
    assert rows[0]["trained_tokens"] == sum(e.num_sampled for e in given.episodes)


def test_the_numbers_of_a_member_do_not_depend_on_who_is_beside_it():
    given, stage = group(), opened(decoder())
    together = scored(stage, given)
    for index, member in enumerate(given.episodes):
        alone = scored(stage, msgspec.structs.replace(given, episodes=(member,)))[0]
        np.testing.assert_allclose(alone.reference, together[index].reference, atol=1e-6)
    turned = scored(stage, msgspec.structs.replace(given, episodes=given.episodes[::-1]))
    for one, other in zip(together, turned[::-1], strict=True):
        np.testing.assert_allclose(one.reference, other.reference, atol=1e-6)


def test_short_rows_have_a_program_of_their_own_and_give_the_same_numbers():
    """Rows of 8 and of 24 tokens: members of 6 and 8 tokens go into short ones, and nothing compiles later."""
    given, stage = (
        group(),
        opened(decoder(), config=ScoringConfig(row_length=LENGTH, row_lengths=(8,), rows_per_batch=2, split_last=1)),
    )
    assert stage.num_compilations == 2
    for before, after in zip(given.episodes, scored(stage, given), strict=True):
        np.testing.assert_allclose(after.reference, plain(decoder(), before), atol=1e-5)
    assert stage.num_compilations == 2
    with pytest.raises(ValueError, match=r"expected row_lengths in ascending order, .* got \(8, 8\); order them"):
        ScoringConfig(row_length=LENGTH, row_lengths=(8, 8))


def test_a_group_that_does_not_fill_a_batch_takes_a_part_of_one_where_devices_can_share_it():
    """What a single short member costs: a quarter of the rows, and all of them where devices cannot share a quarter."""
    config = ScoringConfig(row_length=LENGTH, rows_per_batch=8)
    assert config.shared(1) == config.shared(2) == ((8, LENGTH), (2, LENGTH))
    assert config.shared(4) == ((8, LENGTH),)
    stage, given = opened(decoder(), config=config.model_copy(update={"rows_per_batch": 4})), group()
    assert stage.num_compilations == 2
    read: list[tuple[int, int]] = []
    for shape, program in stage._programs.items():
        stage._programs[shape] = lambda *arrays, program=program, shape=shape: read.append(shape) or program(*arrays)
    alone = scored(stage, msgspec.structs.replace(given, episodes=given.episodes[:1]))
    assert read == [(1, LENGTH)]
    np.testing.assert_allclose(alone[0].reference, plain(decoder(), given.episodes[0]), atol=1e-5)


def test_rows_that_do_not_divide_over_devices_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match=r"multiples of 2, .* data=2 times fsdp=1; got \[3\] by rows_per_batch=3 .*reference"):
        TokenScores(decoder(), "reference", ScoringConfig(row_length=8, rows_per_batch=3), mesh=make_mesh(MeshConfig(data=2)))


def test_a_stage_on_devices_of_its_own_computes_there_with_copies_spread_as_its_mesh_has_it():
    given, model = group(), decoder()
    stage = opened(model, mesh=make_mesh(MeshConfig(tensor=2)))
    for ours, theirs in zip(scored(stage, given), scored(opened(model), given), strict=True):
        np.testing.assert_allclose(ours.reference, theirs.reference, atol=1e-5)
    query = stage._held.on_devices()[0]["blocks"][0]["query"]["kernel_IO"].get_raw_value()
    assert query.sharding.shard_shape(query.shape) == (16, 8)
    assert len(model.blocks[0].query.kernel_IO.get_raw_value().devices()) == 1


def test_members_that_failed_or_sampled_nothing_are_handed_on_as_they_are():
    random = np.random.default_rng(0)
    failed = episode(random, 0, status=Status.TIMED_OUT, reward=None)
    silent = episode(random, 1, mask=np.zeros(9, bool))
    sound = episode(random, 2)
    stage = opened(decoder())
    found = scored(stage, Group(0, (failed, silent, sound)))
    assert found[0] is failed
    assert found[1] is silent
    assert np.isfinite(found[2].reference[sound.mask]).all()
    only = Group(0, (failed, silent))
    assert stage(only, testing.context(node="scores")) is only


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_forward_that_is_not_finite_fails_its_member_alone(broken):
    """A token whose embedding is broken: attention carries it to all of a row, yet its neighbours keep their numbers."""
    model = decoder()
    config = MODEL.model_copy(update={"tie_embeddings": False})
    untied = Transformer(config, nnx.Rngs(0))
    nnx.update(untied, nnx.state(model, nnx.Param))
    given = group()
    sick = given.episodes[1]
    ids = sick.ids.copy()
    ids[1] = VOCAB - 1  # nobody else has this token
    members = (given.episodes[0], msgspec.structs.replace(sick, ids=ids), *given.episodes[2:])
    sound = [plain(untied, member) for member in members]
    untied.embedding_VW[...] = untied.embedding_VW[...].at[VOCAB - 1].set(broken)
    found = scored(opened(untied), Group(0, members))
    assert found[1].status is Status.MODEL_ERROR
    assert found[1].reward is None
    assert found[1].reference is None
    assert found[1].error == "reference: expected a finite number for each sampled token, got nan at position 4"
    for index in (0, 2, 3, 4):
        assert found[index].status is Status.FINISHED
        np.testing.assert_allclose(found[index].reference, sound[index], atol=1e-5)


def test_values_are_the_critics_of_what_came_before():
    """Each sampled token: the head applied to the last vector of the tokens before it, read alone up to there."""
    model = ActorCritic(decoder())
    model.begin()
    model.critic.head_W[...] = jax.random.normal(jax.random.key(0), (16,))
    given = group()
    for before, after in zip(given.episodes[:2], scored(opened(model, "values"), given), strict=False):
        wanted = np.full(len(before.ids), np.nan, np.float32)
        for t in np.flatnonzero(before.mask):
            wanted[t] = alone(model.policy, before.ids[:t])[0][-1] @ np.asarray(model.critic.head_W[...])
        np.testing.assert_allclose(after.values, wanted, atol=1e-5)
        assert after.reference is None


def test_what_is_published_is_in_force_once_its_load_returns():
    """A reference that follows, and one that nothing is published for; a critic, without which weights are refused."""
    given, other = group(), decoder(1)
    stage = opened(decoder())
    asyncio.run(stage.load(Weights(nnx.state(other, nnx.Param)), 1))
    np.testing.assert_allclose(scored(stage, given)[0].reference, plain(decoder(), given.episodes[0]), atol=1e-5)
    asyncio.run(stage.load(Weights(None, reference=nnx.state(other, nnx.Param)), 2))
    np.testing.assert_allclose(scored(stage, given)[0].reference, plain(other, given.episodes[0]), atol=1e-5)
    values = opened(ActorCritic(decoder()), "values")
    with pytest.raises(ValueError, match="expected weights with a critic, got version 3 without one"):
        asyncio.run(values.load(Weights(None), 3))
    with pytest.raises(ValueError, match=r"expected the 11 parameters of the model that scores.*publish those"):
        asyncio.run(stage.load(Weights(None, reference=nnx.state(values._model, nnx.Param)), 4))
    np.testing.assert_allclose(scored(stage, given)[0].reference, plain(other, given.episodes[0]), atol=1e-5)
    assert stage.num_compilations == 1


def test_a_frozen_reference_of_a_model_with_adapters_is_the_base_and_no_copy():
    given, model = group(), decoder(lora=True)
    stage = opened(without_adapters(model))
    for linear in (model.blocks[0].query, model.blocks[0].mlp.up):
        linear.lora_up_RO[...] = jnp.ones_like(linear.lora_up_RO[...])
    np.testing.assert_allclose(scored(stage, given)[0].reference, plain(decoder(), given.episodes[0]), atol=1e-5)
    base = nnx.state(model, nnx.Not(nnx.LoRAParam))
    ours = jax.tree.leaves(stage._held.on_devices())
    assert {leaf.unsafe_buffer_pointer() for leaf in ours} == {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(base)}


def test_parameters_that_rest_in_host_memory_give_the_same_bits_and_leave_the_devices():
    given, stage = group(), opened(decoder(), config=HOST)
    assert {leaf.sharding.memory_kind for leaf in jax.tree.leaves(stage._held._own)} == {"pinned_host"}
    for ours, theirs in zip(scored(stage, given), scored(opened(decoder()), given), strict=True):
        np.testing.assert_array_equal(ours.reference, theirs.reference)
    asyncio.run(stage.load(Weights(None, reference=nnx.state(decoder(1), nnx.Param)), 1))
    np.testing.assert_allclose(scored(stage, given)[0].reference, plain(decoder(1), given.episodes[0]), atol=1e-5)
    assert {leaf.sharding.memory_kind for leaf in jax.tree.leaves(stage._held._own)} == {"pinned_host"}


@pytest.mark.parametrize("config", [CONFIG, HOST])
def test_a_model_that_is_fetched_goes_straight_to_where_it_rests_and_is_let_go(config):
    described = nnx.eval_shape(lambda: Transformer(MODEL, nnx.Rngs(0)))
    wanted = []

    def fetch() -> None:
        state = nnx.state(described, nnx.Param)
        wanted.extend(leaf.sharding.memory_kind for leaf in jax.tree.leaves(state))
        nnx.update(described, jax.tree.map(lambda leaf, to: jax.device_put(leaf, to.sharding), nnx.state(decoder()), state))

    stage, given = TokenScores(described, "teacher", config, fetch=fetch), group()

    async def use() -> tuple[Episode, ...]:
        async with stage:
            return scored(stage, given)

    np.testing.assert_allclose(asyncio.run(use())[0].teacher, plain(decoder(), given.episodes[0]), atol=1e-5)
    assert {kind or "device" for kind in wanted} == {"pinned_host" if config is HOST else "device"}
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(nnx.state(described, trained(described))))


def test_rows_that_cannot_be_scored_are_refused_with_the_remedy():
    stage, random = opened(decoder()), np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"episode 0.3: expected at most row_length=24 tokens, got 30 .*raise row_length"):
        scored(stage, Group(0, (episode(random, 3, 30),)))
    with pytest.raises(ValueError, match=r"episode 0.3: expected a context before the first sampled token"):
        scored(stage, Group(0, (episode(random, 3, prompt=0),)))


def test_the_stage_keeps_its_contract():
    """Opened once for all trials: inputs are left alone, a second attempt gives the same, in whatever order groups come."""
    stage = opened(decoder())

    def scores(given: Group, context: Context) -> Group:
        return stage(given, context)

    check_stage(scores, [group(seed) for seed in range(3)], examples=5, max_block_s=None)


def test_several_threads_score_one_after_another_and_a_load_falls_between_groups():
    """Each group has the numbers of one version throughout, the old or the new."""
    stage, given = opened(decoder()), group()
    versions = {seed: scored(opened(decoder(seed)), given) for seed in (0, 1)}
    found: list[tuple[Episode, ...]] = []

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(score)
                if number == 2:
                    await stage.load(Weights(None, reference=nnx.state(decoder(1), nnx.Param)), 1)

    async def score() -> None:
        found.append(await anyio.to_thread.run_sync(scored, stage, given))

    asyncio.run(main())
    assert len(found) == 6
    for episodes in found:
        assert any(
            all(np.array_equal(a.reference, b.reference, equal_nan=True) for a, b in zip(episodes, wanted, strict=True))
            for wanted in versions.values()
        )


def test_scoring_has_a_track_of_its_own_in_the_trace_with_what_it_compiled(tmp_path: Path):
    with PerfettoWriter(tmp_path / "run.pftrace") as recorder, recording(recorder):
        scored(opened(decoder()), group())
        scored(opened(decoder(1), "teacher"), group())
    trace = read_trace(tmp_path)
    for role in ("reference", "teacher"):
        slices = [each for each in trace.slices if trace.tracks[each.track].name == role]
        assert [each.name for each in slices if each.depth == 0] == ["open", "score"]
        assert [each.args["shape"] for each in slices if each.name == "compile" and each.args["program"] == "score"] == ["2x24"]
        assert slices[-1].args["members"] == 5

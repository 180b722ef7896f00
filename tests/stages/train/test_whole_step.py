"""Steps that go over their groups several times, in several updates, or with statistics of the whole step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest
from flax import nnx

from flow import testing
from stages.batches.pack import make_batch
from stages.batches.rows import RowFiller, Rows
from stages.losses.policy import PolicyLoss
from stages.losses.supervised import SupervisedLoss
from stages.losses.tokens import Needs, Tokens
from stages.records import EpisodeRow, Status
from stages.train.following import FollowConfig
from stages.train.minibatches import cut, order
from stages.train.whitening import whitened

pytestmark = pytest.mark.slow  # Each setting compiles once, about a second.


class Proximal(msgspec.Struct, frozen=True):
    """A loss whose value and gradient tell the proximal log-probabilities from the present ones."""

    needs: Needs = Needs(proximal=True)

    def __call__(self, tokens: Tokens) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        mask = tokens.mask
        old = jax.lax.stop_gradient(tokens.logprobs) if tokens.proximal is None else tokens.proximal
        ratio = jnp.exp(jnp.where(mask, tokens.logprobs - old, 0.0))
        advantages = jnp.where(mask, tokens.advantages * tokens.weights, 0.0)
        clipped = jnp.clip(ratio, 0.95, 1.05)
        sums = {"ratio": jnp.sum(ratio * mask), "clip_fraction_high": jnp.sum((ratio > 1.05) & mask).astype(jnp.float32)}
        return -jnp.sum(jnp.minimum(ratio * advantages, clipped * advantages)), jax.lax.stop_gradient(sums)


def logprobs_of(model: nnx.Module, rows: Rows) -> jax.Array:
    """[N, L], by the definition."""
    logits = model(rows.ids, rows.positions, rows.segments)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits)[:, :-1], jnp.asarray(rows.ids)[:, 1:, None], axis=-1)[..., 0]
    return jnp.pad(chosen, ((0, 0), (1, 0)))


def by_hand(model: nnx.Module, wholes: list[Rows], sequence: list[int], rate: float) -> tuple[Any, list[float], list[Any]]:
    """Plain AdamW over whole minibatches in a stated order: parameters, losses, and the old policy's log-probabilities."""
    graphdef, parameters = nnx.split(model, nnx.Param)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=0.0))

    def mean_loss(parameters: Any, rows: Rows, old: jax.Array) -> jax.Array:
        ratio = jnp.exp(jnp.where(rows.mask, logprobs_of(nnx.merge(graphdef, parameters), rows) - old, 0.0))
        advantages = rows.advantages * rows.mask
        return -jnp.sum(jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.95, 1.05) * advantages)) / rows.mask.sum()

    @jax.jit
    def step(parameters: Any, state: Any, rows: Rows, old: jax.Array) -> tuple:
        loss, gradient = jax.value_and_grad(mean_loss)(parameters, rows, old)
        steps, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, steps), state, loss

    olds = [jax.jit(lambda p, rows: logprobs_of(nnx.merge(graphdef, p), rows))(parameters, rows) for rows in wholes]
    state, losses = optimizer.init(parameters), []
    for number in sequence:
        parameters, state, loss = step(parameters, state, wholes[number], olds[number])
        losses.append(float(loss))
    return parameters, losses, olds


def test_passes_go_over_the_whole_step_with_one_old_policy_for_all_of_them(train, batches, tiny, flat):
    """S78: minibatches A and B, two passes: each pass has both before the next begins; by hand with plain optax."""
    step = batches([2, 1, 3])
    ran = train([step], loss=Proximal(), num_epochs=2, num_minibatches=2, learning_rate=0.05)
    fillers = [RowFiller([(2, 12)]) for _ in range(2)]
    for filler, part in zip(fillers, (step[:2], step[2:]), strict=True):
        assert [block for batch in part for block in filler.add(batch.units)] == []
    wholes = [rows for filler in fillers for rows in filler.flush()]
    sequence = [*order(0, 1, 0, 2), *order(0, 1, 1, 2)]
    assert sorted(sequence[:2]) == sorted(sequence[2:]) == [0, 1]
    expected, losses, olds = by_hand(tiny(), wholes, sequence, 0.05)
    np.testing.assert_allclose(flat(ran.published[0]), flat(expected), atol=2e-5)
    targets = [int(wholes[number].mask.sum()) for number in sequence]
    (row,) = ran.rows
    assert row["loss"] == pytest.approx(np.dot(losses, targets) / sum(targets), rel=1e-4)
    assert (row["updates"], row["epochs"], row["microbatches"], row["trained_tokens"]) == (4, 2, 2 * (1 + 1), 24)
    assert row["clip_fraction_high"] > 0
    apart = [np.abs(old - rows.logprobs)[rows.mask] for old, rows in zip(olds, wholes, strict=True)]
    assert row["proximal_gap"] == pytest.approx(np.concatenate(apart).mean(), rel=1e-4)
    # Only before the first update are the parameters those that sampled.
    assert row["engine_gap"] == pytest.approx(apart[sequence[0]].mean(), rel=1e-4)
    assert row["engine_gap_max"] == pytest.approx(apart[sequence[0]].max(), rel=1e-4)


def test_a_single_update_has_no_pass_of_an_old_policy(train, batches):
    """It would be the one that is differentiated; a loss that reads no behaviour has no use for one either."""
    (single,) = train([batches([3])], loss=Proximal()).rows
    (supervised,) = train([batches([3])], loss=SupervisedLoss(), num_epochs=2).rows
    (several,) = train([batches([3])], loss=Proximal(), num_epochs=2).rows
    assert (single["proximal_gap"], single["proximal_s"], single["compilations"]) == (None, 0.0, 2)
    assert (supervised["proximal_gap"], supervised["updates"], supervised["compilations"]) == (None, 2, 2)
    assert (several["updates"], several["compilations"]) == (2, 3)
    assert several["proximal_s"] > 0


def test_a_whole_step_with_one_update_is_the_streamed_one(train, batches, flat):
    """Held, since there might be more minibatches than groups: the same numbers."""
    steps = [batches([5]), batches([3], seed=1)]
    streamed, held = train(steps), train(steps, num_minibatches=2)
    np.testing.assert_allclose(flat(streamed.published[-1]), flat(held.published[-1]), atol=1e-6)
    assert [row["updates"] for row in held.rows] == [1, 1]


def test_how_groups_arrive_does_not_decide_the_order_of_the_passes():
    """A function of seed, step and pass alone; other passes and steps differ."""
    assert [order(0, 3, epoch, 8) for epoch in range(2)] == [order(0, 3, epoch, 8) for epoch in range(2)]
    orders = {tuple(order(seed, step, epoch, 8)) for seed in (0, 1) for step in (1, 2) for epoch in (0, 1)}
    assert len(orders) == 8
    assert all(sorted(one) == list(range(8)) for one in orders)


@pytest.mark.parametrize(("groups", "wanted", "sizes"), [(7, 3, [3, 2, 2]), (2, 4, [1, 1]), (4, 1, [4]), (0, 2, [0])])
def test_minibatches_are_consecutive_groups_of_even_counts(batches, groups, wanted, sizes):
    step = batches([1] * groups)
    parts = cut(step, wanted)
    assert [len(part) for part in parts] == sizes
    assert [batch.birth for part in parts for batch in part] == list(range(groups))


def test_a_minibatch_without_targets_is_left_out_and_the_schedule_counts_updates(train, batches):
    """S76: A has targets, B has none: two passes are two updates, and a linear schedule of four is half way."""
    ran = train([batches([2, 0])] * 2, num_epochs=2, num_minibatches=2, schedule="linear", decay_steps=4, final_share=0.0)
    assert [row["updates"] for row in ran.rows] == [2, 2]
    assert [row["skipped_no_targets"] for row in ran.rows] == [2, 2]
    np.testing.assert_allclose([row["learning_rate"] for row in ran.rows], [0.01 * 3 / 4, 0.01 * 1 / 4], rtol=1e-5)
    assert ran.rows[0]["warning"] == "2 of 4 updates skipped: no_targets"
    assert [row["skipped_total"] for row in ran.rows] == [2, 4]


def test_whitening_is_over_all_tokens_of_a_step(train, batches, flat):
    """By hand, with NumPy over all targets; the trainer then takes the same step as with those advantages given."""
    step = batches([2, 3, 1])
    values = np.concatenate([segment.advantages[segment.mask] for batch in step for segment in batch.segments])
    by_hand = [
        msgspec.structs.replace(batch, units=tuple((white(unit[0], values.mean(), values.std()),) for unit in batch.units))
        for batch in step
    ]
    for got, expected in zip(whitened(step), by_hand, strict=True):
        for one, other in zip(got.segments, expected.segments, strict=True):
            np.testing.assert_allclose(one.advantages, other.advantages, atol=1e-6)
    ran, expected = train([step], whiten=True), train([by_hand])
    np.testing.assert_allclose(flat(ran.published[0]), flat(expected.published[0]), atol=1e-6)
    assert ran.rows[0]["microbatches"] == expected.rows[0]["microbatches"]


def white(segment: Any, mean: float, deviation: float) -> Any:
    return msgspec.structs.replace(
        segment, advantages=np.where(segment.mask, (segment.advantages - mean) / deviation, 0).astype(np.float32)
    )


def test_whitening_refuses_batches_without_the_silent_ones(segment):
    """Their advantage of 0 is not 0 once the mean is gone, so leaving them out would change the others."""
    one = segment(np.random.default_rng(0))
    episodes = (EpisodeRow(Status.FINISHED, 1.0, 4, 1, 0.1), EpisodeRow(Status.FINISHED, 0.5, 4, 1, 0.1))
    with pytest.raises(ValueError, match=r"group 7: expected all 8 sampled tokens .*got 4, .*with_silent"):
        whitened([make_batch(7, [(one,)], divisor=8.0, episodes=episodes)])
    dead = msgspec.structs.replace(episodes[1], live=False)
    assert len(whitened([make_batch(7, [(one,)], episodes=(episodes[0], dead))])) == 1


def test_a_resumed_run_goes_over_its_steps_as_one_that_went_on(train, batches, flat, tmp_path: Path):
    """S100: the order of the passes and the schedule follow from the step and the updates before it."""
    steps = [batches([2, 1, 1], seed) for seed in range(4)]
    settings = {"num_epochs": 2, "num_minibatches": 3, "schedule": "linear", "decay_steps": 24, "loss": Proximal()}
    straight = train(steps, **settings)
    train(steps[:2], until=tmp_path / "kept", **settings)
    resumed = train(steps[2:], since=tmp_path / "kept", **settings)
    np.testing.assert_array_equal(flat(resumed.published[-1]), flat(straight.published[-1]))
    for name in ("step", "loss", "grad_norm", "learning_rate", "proximal_gap"):
        assert [row[name] for row in resumed.rows] == [row[name] for row in straight.rows[2:]]


@pytest.mark.parametrize("same", [0.0, 1.0, -0.3])
def test_a_step_without_signal_once_whitened_is_as_one_without_targets(train, segment, flat, same):
    """S74, S76: the momentum of the step before moves nothing, and nothing of it counts as trained."""
    told, silent = group(segment, 0, 1.0, -1.0, 0.5), group(segment, 1, same, same)
    ran = train([[told], [silent]], whiten=True)
    assert (flat(ran.published[0]) == flat(ran.published[1])).all()
    names = ("skipped", "updates", "trained_tokens", "goodput", "no_signal_groups", "microbatches", "loss")
    assert [ran.rows[1][name] for name in names] == ["no_targets", 0, 0, 0.0, 1.0, 0, None]
    assert [ran.rows[0][name] for name in names[:5]] == [None, 1, 12, 1.0, 0.0]


def test_a_minibatch_and_a_segment_without_signal_once_whitened_are_no_targets(train, segment):
    """The mean of the step is 0.25, which is what one segment of A and all of B have."""
    step = [group(segment, 0, 1.25, -0.75, 0.25), group(segment, 1, 0.25, 0.25)]
    (row,) = train([step], whiten=True, num_minibatches=2).rows
    assert (row["updates"], row["skipped_no_targets"]) == (1, 1)
    assert (row["trained_tokens"], row["goodput"], row["no_signal_groups"]) == (8, 8 / 20, 0.5)


def test_a_loss_with_a_gradient_of_silent_targets_trains_them_once_whitened(train, segment):
    (row,) = train([[group(segment, 0, 1.0, 1.0)]], loss=PolicyLoss(entropy_coefficient=0.1), whiten=True).rows
    assert (row["updates"], row["trained_tokens"], row["no_signal_groups"]) == (1, 8, 1.0)


def group(segment: Any, birth: int, *advantages: float) -> Any:
    """A batch of a segment of four targets for each advantage."""
    random = np.random.default_rng(birth)
    made = [msgspec.structs.replace(segment(random), advantages=np.full(6, each, np.float32)) for each in advantages]
    return make_batch(birth, [(one,) for one in made], episodes=(EpisodeRow(Status.FINISHED, 1.0, 4, 1, 0.1),) * len(made))


def test_nothing_compiles_after_a_trainer_has_opened_whatever_it_does(trainer, batches, tiny):
    """S91: several updates, an old policy's pass, published casts, a schedule, an average, state in the host's memory."""
    compiled: list[str] = []

    def count(name: str, duration: float, **_: Any) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(name)

    rows: list[dict[str, Any]] = []
    context = testing.context(node="trainer", report=rows.append)
    # Micro-batches of 2 x 12 tokens and of 4 x 6.
    settings = {
        "row_lengths": (6,),
        "num_epochs": 2,
        "num_minibatches": 2,
        "whiten": True,
        "optimizer_memory": "host",
        "max_grad_norm_ratio": 100.0,
    }
    # A rate that no other test has, so that nothing is compiled yet.
    schedule = {"warmup_steps": 2, "schedule": "cosine", "decay_steps": 5, "learning_rate": 0.0321}
    loss, follow = PolicyLoss(against="proximal"), FollowConfig(decay=0.5)
    one = trainer(tiny(dtype=jnp.bfloat16), loss=loss, follow=follow, **settings, **schedule)
    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        one.open()
        opened = len(compiled)
        for sizes in ([1], [4, 9, 0], [0], [30]):
            for batch in batches(sizes):
                one.add(batch, context)
            one.finish(context)
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    one.close()
    assert opened >= 6
    assert len(compiled) == opened
    assert [row["compilations"] for row in rows] == [2 * 2 + 2] * 4

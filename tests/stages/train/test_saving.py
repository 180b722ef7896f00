"""What of a trainer goes into a commit: to the bit, of the latest step that is complete, whatever is trained meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from flow import testing
from flow.saving import Resumable, Saves
from stages.checkpoint.store import load_model
from stages.train.metrics import of_the_machine
from stages.train.trainer import Trainer, TrainerState

pytestmark = pytest.mark.slow  # Each setting compiles once, about a second.

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"schedule": "linear", "decay_steps": 5, "warmup_steps": 2},
    "bfloat16 with float32 masters": {"dtype": jnp.bfloat16, "max_grad_norm_skip": 1e-1},
    "several passes and minibatches": {"num_epochs": 2, "num_minibatches": 2, "seed": 3},
    "a bound on norms that bites": {"max_grad_norm_skip": 0.1},
    "an optimizer in host memory": {"optimizer_memory": "host"},
    "whitened, rows of two lengths": {"whiten": True, "row_lengths": (8,), "split_last": True},
}
"""Critics and references that follow are in ``test_following.py``, adapters in ``test_with_engine.py``."""


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """All that a step reports but times."""
    return {name: value for name, value in row.items() if not of_the_machine(name)}


def step(trainer: Trainer, batches: list, rows: list | None = None) -> Any:
    context = testing.context(node="trainer", report=[].append if rows is None else rows.append)
    for batch in batches:
        trainer.add(batch, context)
    return trainer.finish(context).parameters


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_run_that_goes_on_takes_the_same_steps_as_one_that_never_stopped(train, batches, tiny, flat, tmp_path: Path, kind):
    """S97, S100: parameters, moments, masters, norms and every number that is reported, bit for bit, step after step."""
    settings = dict(SETTINGS[kind])
    dtype = settings.pop("dtype", jnp.float32)
    steps = [batches([3, 1, 2], seed) for seed in range(5)]
    straight = train(steps, model=tiny(dtype=dtype), **settings)
    first = train(steps[:2], until=tmp_path / "kept", model=tiny(dtype=dtype), **settings)
    rest = train(steps[2:], since=tmp_path / "kept", model=tiny(1, dtype=dtype), **settings)
    for ours, theirs in zip([*first.published, *rest.published], straight.published, strict=True):
        np.testing.assert_array_equal(flat(ours), flat(theirs))
    for ours, theirs in zip([*first.rows, *rest.rows], straight.rows, strict=True):
        assert numbers(ours) == numbers(theirs)
    learners = rest.trainer._learner, straight.trainer._learner
    np.testing.assert_array_equal(*(flat((learner.parameters, learner.state)) for learner in learners))
    if kind == "a bound on norms that bites":
        assert 0 < straight.rows[-1]["skipped_total"] < 5
    assert rest.trainer.state() == straight.trainer.state()


def test_what_was_taken_is_that_of_its_step_though_others_were_trained_before_it_was_written(
    trainer, batches, tiny, flat, take_up, tmp_path: Path
):
    """The optimizer state is donated by the next step, and masters are. What is written late is what was taken."""
    one, other = trainer(tiny(dtype=jnp.bfloat16)), trainer(tiny(1, dtype=jnp.bfloat16))
    one.open()
    other.open()
    parameters = step(one, batches([3], 0))
    write, state = one.save(tmp_path / "kept"), one.state()
    taken = flat((one._learner.parameters, one._learner.state))
    for seed in range(1, 4):
        step(one, batches([3], seed))
    write()
    other.load(tmp_path / "kept")
    other.restore(state)
    assert other.step == state.step == 1
    np.testing.assert_array_equal(flat((other._learner.parameters, other._learner.state)), taken)
    np.testing.assert_array_equal(flat(other.weights.parameters), flat(parameters))


def test_items_of_a_step_under_way_leave_state_and_arrays_alone(trainer, batches, tiny, flat, keep, tmp_path: Path):
    """P4: they come again, whether their gradient was taken or not."""
    one = trainer(tiny())
    one.open()
    step(one, batches([3], 0))
    before = one.state(), flat((one._learner.parameters, one._learner.state))
    one.add(batches([4], 1)[0], testing.context(node="trainer"))
    assert np.abs(flat(one._learner.accumulated)).max() > 0
    keep(one, tmp_path / "kept")
    again = trainer(tiny(1))
    again.open()
    again.load(tmp_path / "kept")
    again.restore(one.state())
    assert again.state() == before[0]
    np.testing.assert_array_equal(flat((again._learner.parameters, again._learner.state)), before[1])
    assert not flat(again._learner.accumulated).any()


def test_closing_writes_the_parameters_into_the_model_and_nothing_on_disk(trainer, batches, tiny, flat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, published = tiny(), []

    async def run() -> None:
        async with trainer(model) as one:
            published.append(step(one, batches([1])))

    asyncio.run(run())
    np.testing.assert_array_equal(flat(nnx.state(model, nnx.Param)), flat(published[0]))
    assert not list(tmp_path.iterdir())


def test_the_policys_parameters_can_be_loaded_alone(train, batches, tiny, flat, tmp_path: Path):
    """As ``eval``, ``export`` and ``chat`` do, which know no optimizer."""
    ran, other = train([batches([2])], until=tmp_path / "kept"), tiny(1)
    load_model(other, tmp_path / "kept")
    np.testing.assert_array_equal(flat(nnx.state(other, nnx.Param)), flat(ran.published[0]))


@pytest.mark.parametrize("part", ["parameters", "optimizer"])
def test_arrays_of_another_run_are_refused(train, trainer, batches, tiny, part, tmp_path: Path):
    """Its model in another type; the same with another optimizer would begin with moments of zero (S100)."""
    train([batches([2])], until=tmp_path / "kept")
    other = trainer(tiny(dtype=jnp.bfloat16)) if part == "parameters" else trainer(tiny(), max_grad_norm=None)
    other.open()
    with pytest.raises(ValueError, match=rf"kept/{part}: expected the arrays of this model, got others \("):
        other.load(tmp_path / "kept")


def test_a_disk_that_is_full_is_told_by_what_writes_and_the_trainer_goes_on(
    trainer, batches, tiny, keep, tmp_path: Path, full_disk
):
    """S98, S99: and the next commit is written anew."""
    one = trainer(tiny())
    one.open()
    step(one, batches([2]))
    write = one.save(tmp_path / "full")
    full_disk(1)
    with pytest.raises(OSError, match=r"full/parameters: expected 3 arrays to be written, got"):
        write()
    full_disk(None)
    step(one, batches([2], 1))
    keep(one, tmp_path / "kept")
    again = trainer(tiny(1))
    again.open()
    again.load(tmp_path / "kept")


def test_a_trainer_declares_what_it_keeps(trainer, tiny):
    one = trainer(tiny())
    assert isinstance(one, Resumable)
    assert isinstance(one, Saves)
    assert one.state() == TrainerState()

"""Checkpoints of a trainer: when they are written, whatever ends it, and what a run that goes on has of them."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from flax import nnx

from flow import testing
from stages.checkpoint.store import CheckpointStore, complete_steps, load_parameters
from stages.train.trainer import Trainer

pytestmark = pytest.mark.slow  # Each setting compiles once, about a second.

CONTEXT = testing.context(node="trainer")


def one_step(trainer: Trainer, step: list) -> None:
    for batch in step:
        trainer.add(batch, CONTEXT)
    trainer.finish(CONTEXT)


def test_a_resumed_run_takes_the_same_steps_as_one_that_went_on(train, batches, tiny, flat, tmp_path: Path):
    """S100: parameters, moments and the schedule come back, bit for bit."""
    steps = [batches([3], seed) for seed in range(4)]
    settings = {"schedule": "linear", "decay_steps": 4}
    straight = train(steps, **settings)
    first = train(steps[:2], CheckpointStore(tmp_path), **settings)
    rest = train(steps[2:], CheckpointStore(tmp_path), resume=True, model=tiny(1), **settings)
    np.testing.assert_array_equal(flat(rest.published[-1]), flat(straight.published[-1]))
    for name in ("step", "loss", "grad_norm", "learning_rate"):
        assert [row[name] for row in first.rows + rest.rows] == [row[name] for row in straight.rows]


def test_the_trainer_saves_every_nth_step_and_the_last(trainer, batches, tiny, flat, tmp_path: Path):
    model = tiny()

    async def run() -> None:
        async with trainer(model, CheckpointStore(tmp_path, keep=None), checkpoint_every=2) as one:
            for seed in range(5):
                one_step(one, batches([1], seed))

    asyncio.run(run())
    assert complete_steps(tmp_path) == [2, 4, 5]
    other = tiny(1)
    assert load_parameters(other, tmp_path) == 5
    np.testing.assert_array_equal(flat(nnx.state(other, nnx.Param)), flat(nnx.state(model, nnx.Param)))


def test_a_cancelled_run_still_saves_its_last_step(trainer, batches, tiny, tmp_path: Path):
    async def run() -> None:
        async with trainer(tiny(), CheckpointStore(tmp_path)) as one:
            one_step(one, batches([1]))
            asyncio.current_task().cancel()
            await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert complete_steps(tmp_path) == [1]


def test_cancelling_again_while_it_closes_does_not_cut_the_save_short(trainer, batches, tiny, tmp_path: Path):
    """S28: natively, at every turn of the loop until it is done."""
    left = []

    async def run() -> None:
        async with trainer(tiny(), CheckpointStore(tmp_path)) as one:
            one_step(one, batches([1]))
            left.append(True)

    async def main() -> None:
        task = asyncio.create_task(run())
        while not task.done():
            await asyncio.sleep(0.001)
            if left:
                task.cancel()
        assert complete_steps(tmp_path) == [1]
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_a_folder_with_steps_of_another_run_is_refused(trainer, tiny, tmp_path: Path):
    with CheckpointStore(tmp_path) as store:
        store.save(3, {"w": np.ones(1)})
    with pytest.raises(ValueError, match="expected no checkpoints of another run, got step 3; choose another run name"):
        trainer(tiny(), CheckpointStore(tmp_path)).open()

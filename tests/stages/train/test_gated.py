"""A trainer behind a gate: whose weights the model has at the end, what is on disk, and what a stop leaves."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx

from flow import testing
from stages.checkpoint.best import BestStore
from stages.checkpoint.store import CheckpointStore, complete_steps, load_parameters
from stages.train.gate import Gate, GateClosed, GateConfig
from stages.train.gated import Gated

pytestmark = pytest.mark.slow  # Each trainer compiles, and what is saved goes through the disk.


class Ran:
    """Three steps, each evaluated: version 2 is the best. ``flat`` and the rest are fixtures of this folder."""

    def __init__(self, tiny: Any, trainer: Any, batches: Any, config: GateConfig, folder: Path | None, **settings: Any):
        self.model, self.rows, self.published = tiny(), [], []
        checkpoints = None if folder is None else CheckpointStore(folder / "checkpoints", keep=1)
        store = None if folder is None or not config.needs_heldout else BestStore(folder / "checkpoints")
        made = trainer(self.model, *(() if checkpoints is None else (checkpoints,)), **settings)
        self.gate = Gate(config)
        self.gated = Gated(made, self.gate, self.model, store)
        self.batches = batches

    async def run(self, scores: tuple[float, ...] = (0.2, 0.6, 0.3)) -> None:
        context = testing.context(node="trainer", report=self.rows.append)
        async with self.gated:
            for number, score in enumerate(scores, 1):
                for batch in self.batches((2, 2), seed=number):
                    self.gated.add(batch, context)
                weights = self.gated.finish(context)
                self.published.append(weights.parameters)
                await self.gated.see_heldout(weights, {"version": number, "heldout": score, "heldout_low": score - 0.1})


@pytest.fixture
def ran(tiny, trainer, batches):
    def make(config: GateConfig, folder: Path | None = None, **settings: Any) -> Ran:
        return Ran(tiny, trainer, batches, config, folder, **settings)

    return make


def parameters(model: nnx.Module) -> Any:
    return nnx.state(model, nnx.Param)


@pytest.mark.parametrize("stored", [True, False])
def test_the_best_weights_are_what_the_model_has_at_the_end(ran, flat, tmp_path, stored):
    """Written back bit for bit, from disk or from memory."""
    made = ran(GateConfig(action="keep_best"), tmp_path if stored else None)
    asyncio.run(made.run())
    assert np.array_equal(flat(parameters(made.model)), flat(made.published[1]))
    assert not np.array_equal(flat(made.published[1]), flat(made.published[2]))


def test_retention_of_steps_leaves_the_best_alone_and_loading_the_run_gives_it(ran, tiny, flat, tmp_path):
    """One step is kept, the last, to go on from. Better weights replace worse ones; both folders hold one."""
    made = ran(GateConfig(action="keep_best"), tmp_path, checkpoint_every=1)
    asyncio.run(made.run())
    folder = tmp_path / "checkpoints"
    assert complete_steps(folder) == [3]
    assert complete_steps(folder / "best") == [2]
    loaded = tiny(seed=5)
    assert load_parameters(loaded, folder) == 2
    assert np.array_equal(flat(parameters(loaded)), flat(made.published[1]))
    assert load_parameters(loaded, folder, 3) == 3
    assert np.array_equal(flat(parameters(loaded)), flat(made.published[2]))


def test_a_run_with_best_weights_goes_on_from_its_last_step(ran, trainer, tiny, flat, tmp_path):
    """What wins for readers is not where training was."""
    made = ran(GateConfig(action="keep_best"), tmp_path)
    asyncio.run(made.run())
    again = trainer(tiny(seed=5), CheckpointStore(tmp_path / "checkpoints"), resume=True)
    again.open()
    assert again.step == 3
    assert np.array_equal(flat(again.weights.parameters), flat(made.published[2]))
    again.close()


def test_a_stop_keeps_the_best_weights_beside_the_last_ones(ran, tiny, flat, tmp_path):
    """The error names version 2; what loads the run is still its last step, since nobody said that the best is to win."""
    made = ran(GateConfig(heldout_drop=0.1), tmp_path)
    with pytest.raises(GateClosed, match=r"got 0.3 in the evaluation of version 3; the best weights are those of version 2"):
        asyncio.run(made.run())
    folder = tmp_path / "checkpoints"
    assert (complete_steps(folder), complete_steps(folder / "best")) == ([3], [2])
    assert np.array_equal(flat(parameters(made.model)), flat(made.published[2]))
    loaded = tiny(seed=5)
    assert load_parameters(loaded, folder) == 3
    assert load_parameters(loaded, folder / "best") == 2
    assert np.array_equal(flat(parameters(loaded)), flat(made.published[1]))


def test_a_step_out_of_its_tolerance_stops_the_run_after_it_is_saved(ran, tmp_path):
    """The batches carry no episodes: the one figure that is measured is the lag."""
    made = ran(GateConfig(lag_max=0, patience=2), tmp_path)
    context = testing.context(node="trainer", report=made.rows.append, lag=1)

    async def main() -> None:
        async with made.gated:
            for number in range(3):
                for batch in made.batches((2, 2), seed=number):
                    made.gated.add(batch, context)
                made.gated.finish(context)

    with pytest.raises(GateClosed, match=r"expected lag_max of at most 0 \(gate.lag_max\); got 1 at step 2;"):
        asyncio.run(main())
    assert [row["step"] for row in made.rows] == [1, 2]
    assert complete_steps(tmp_path / "checkpoints") == [2]
    assert not (tmp_path / "checkpoints" / "best").exists()


def test_without_a_gate_nothing_is_kept_and_the_model_has_the_last_weights(ran, flat, tmp_path):
    made = ran(GateConfig(), tmp_path)
    asyncio.run(made.run())
    assert np.array_equal(flat(parameters(made.model)), flat(made.published[2]))
    assert made.gate.best is None
    assert not (tmp_path / "checkpoints" / "best").exists()

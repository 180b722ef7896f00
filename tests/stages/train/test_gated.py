"""A trainer behind a gate: whose weights the model has at the end, what a commit holds, and what a stop leaves."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from flax import nnx

from flow import testing
from flow.saving import Commits
from stages.checkpoint.best import BestWeights
from stages.checkpoint.store import load_model, load_parameters, versions
from stages.train.gate import Gate, GateClosed, GateConfig
from stages.train.gated import Gated, GatedState

pytestmark = pytest.mark.slow  # Each trainer compiles, and what is saved goes through the disk.

KEEP_BEST = GateConfig(action="keep_best")
SCORES = (0.2, 0.6, 0.3)
"""Of three steps: version 2 is the best."""


class Ran:
    """Steps, each evaluated and then committed. ``flat`` and the rest are fixtures of this folder."""

    def __init__(self, tiny: Any, trainer: Any, batches: Any, config: GateConfig, folder: Path | None, seed: int = 0):
        self.model, self.rows, self.published = tiny(seed=seed), [], []
        self.folder, self.gate = folder, Gate(config)
        best = BestWeights(None if folder is None else folder / "best")
        self.gated = Gated(trainer(self.model), self.gate, self.model, best)
        self.batches = batches
        self.context = testing.context(node="trainer", report=self.rows.append)

    async def run(self, scores: tuple[float, ...] = SCORES, *, first: int = 1, commits: Commits | None = None) -> None:
        async with self.gated:
            if first > 1:
                self.take_up(first - 1)
            for number, score in enumerate(scores, first):
                await self.step(number, score)
                if commits is not None:
                    self.commit(commits)

    async def step(self, number: int, score: float) -> None:
        for batch in self.batches((2, 2), seed=number):
            self.gated.add(batch, self.context)
        weights = self.gated.finish(self.context)
        self.published.append(weights.parameters)
        await self.gated.see_heldout(weights, {"version": number, "heldout": score, "heldout_low": score - 0.1})

    def commit(self, commits: Commits) -> None:
        draft, state = commits.begin(), msgspec.msgpack.encode(self.gated.state())
        write = self.gated.save(draft.folder / "trainer")
        commits.write(draft, {}, writes=[write, lambda: (draft.folder / "trainer" / "state").write_bytes(state)])

    def take_up(self, number: int) -> None:
        folder = self.folder / "checkpoints" / f"{number:06}" / "trainer"
        self.gated.load(folder)
        self.gated.restore(msgspec.msgpack.decode((folder / "state").read_bytes(), type=GatedState))


@pytest.fixture
def ran(tiny, trainer, batches):
    def make(config: GateConfig, folder: Path | None = None, seed: int = 0) -> Ran:
        return Ran(tiny, trainer, batches, config, folder, seed)

    return make


def parameters(model: nnx.Module) -> Any:
    return nnx.state(model, nnx.Param)


@pytest.mark.parametrize("stored", [True, False])
def test_the_best_weights_are_what_the_model_has_at_the_end(ran, flat, tmp_path, stored):
    """Written back bit for bit, from the run's folder or from one that is gone with it."""
    made = ran(KEEP_BEST, tmp_path if stored else None)
    asyncio.run(made.run())
    assert np.array_equal(flat(parameters(made.model)), flat(made.published[1]))
    assert not np.array_equal(flat(made.published[1]), flat(made.published[2]))


def test_a_commit_holds_the_best_weights_and_loading_the_run_gives_them(ran, tiny, flat, tmp_path):
    """By links: nothing is written twice. A commit that is asked for by number gives the weights of its step."""
    made = ran(KEEP_BEST, tmp_path)
    with Commits(tmp_path / "checkpoints", keep=1) as commits:
        asyncio.run(made.run(commits=commits))
    [commit] = [path for path in commits.folder.iterdir() if path.is_dir()]
    assert versions(commit / "trainer" / "best") == [2]
    shared = [path.stat().st_nlink for path in (commit / "trainer" / "best").rglob("*") if path.is_file()]
    assert set(shared) == {2}
    loaded = tiny(seed=5)
    assert load_parameters(loaded, commits.folder) == 3
    assert np.array_equal(flat(parameters(loaded)), flat(made.published[1]))
    assert load_parameters(loaded, commits.folder, 3) == 3
    assert np.array_equal(flat(parameters(loaded)), flat(made.published[2]))


def test_a_run_that_goes_on_has_the_best_weights_of_its_own_past(ran, flat, tmp_path):
    """A kill after better ones were kept and before the next commit: they never were, and those before them are there."""
    first = ran(KEEP_BEST, tmp_path)

    async def killed() -> None:
        await first.gated.__aenter__()
        with Commits(tmp_path / "checkpoints") as commits:
            await first.step(1, 0.5)
            first.commit(commits)
            await first.step(2, 0.9)

    asyncio.run(killed())
    assert versions(tmp_path / "best") == [1, 2]
    second = ran(KEEP_BEST, tmp_path, seed=1)
    with Commits(tmp_path / "checkpoints") as commits:
        asyncio.run(second.run((0.4, 0.3), first=2, commits=commits))
    assert versions(tmp_path / "best") == [1]
    assert second.gate.best == {"version": 1, "heldout": 0.5, "heldout_low": 0.4}
    assert np.array_equal(flat(parameters(second.model)), flat(first.published[0]))
    assert np.array_equal(flat(second.published[0]), flat(first.published[1]))


def test_better_weights_that_come_between_state_and_save_are_not_mixed_in(ran, flat, tiny, tmp_path):
    """An evaluation may end at any time. What was pinned stays until it is linked, however many are better meanwhile."""
    made = ran(KEEP_BEST, tmp_path)

    async def run() -> None:
        async with made.gated:
            await made.step(1, 0.1)
            state = made.gated.state()
            for number in (2, 3, 4):
                await made.step(number, number / 10)
            made.gated.save(tmp_path / "kept")()
            assert state.gate.best["version"] == 1
            assert versions(tmp_path / "best") == [1, 3, 4]
            made.gated.state()
            await made.step(5, 0.9)
            assert versions(tmp_path / "best") == [4, 5]

    asyncio.run(run())
    assert versions(tmp_path / "kept" / "best") == [1]
    loaded = tiny(seed=5)
    load_model(loaded, tmp_path / "kept" / "best" / "000001")
    assert np.array_equal(flat(parameters(loaded)), flat(made.published[0]))


def test_the_same_evaluation_may_come_again(ran, flat, tmp_path):
    """As after a kill between its end and that of its step."""
    made = ran(KEEP_BEST, tmp_path)

    async def run() -> None:
        async with made.gated:
            await made.step(1, 0.5)
            row = dict(made.gate.best)
            await made.gated.see_heldout(made.gated.weights, row)

    asyncio.run(run())
    assert versions(tmp_path / "best") == [1]
    assert np.array_equal(flat(parameters(made.model)), flat(made.published[0]))


def test_a_stop_keeps_the_best_weights_beside_the_last_ones(ran, tiny, flat, tmp_path):
    """The error names version 2; what loads the run is still its last commit, since nobody said that the best is to win."""
    made = ran(GateConfig(heldout_drop=0.1), tmp_path)
    with (
        Commits(tmp_path / "checkpoints") as commits,
        pytest.raises(GateClosed, match=r"got 0.3 in the evaluation of version 3; the best weights are those of version 2"),
    ):
        asyncio.run(made.run((0.6, 0.65, 0.3), commits=commits))
    assert np.array_equal(flat(parameters(made.model)), flat(made.published[2]))
    loaded = tiny(seed=5)
    assert load_parameters(loaded, commits.folder) == 2
    load_model(loaded, tmp_path / "best" / "000002")
    assert np.array_equal(flat(parameters(loaded)), flat(made.published[1]))


def test_a_step_out_of_its_tolerance_stops_the_run(ran, tmp_path):
    """The batches carry no episodes: the one figure that is measured is the lag. One that goes on knows the step before."""
    made = ran(GateConfig(lag_max=0, patience=2), tmp_path)
    context = testing.context(node="trainer", report=made.rows.append, lag=1)

    async def main(number: int, state: GatedState | None) -> GatedState:
        gated = ran(GateConfig(lag_max=0, patience=2), tmp_path).gated
        async with gated:
            if state is not None:
                gated.load(tmp_path / "kept")
                gated.restore(state)
            for batch in made.batches((2, 2), seed=number):
                gated.add(batch, context)
            gated.finish(context)
            gated.save(tmp_path / "kept")()
            return msgspec.msgpack.decode(msgspec.msgpack.encode(gated.state()), type=GatedState)

    state = asyncio.run(main(1, None))
    with pytest.raises(GateClosed, match=r"expected lag_max of at most 0 \(gate.lag_max\); got 1 at step 2;"):
        asyncio.run(main(2, state))
    assert [row["step"] for row in made.rows] == [1, 2]
    assert not (tmp_path / "best").exists()


def test_without_a_gate_nothing_is_kept_and_the_model_has_the_last_weights(ran, flat, tmp_path):
    made = ran(GateConfig(), tmp_path)
    asyncio.run(made.run())
    assert np.array_equal(flat(parameters(made.model)), flat(made.published[2]))
    assert made.gate.best is None
    assert not (tmp_path / "best").exists()

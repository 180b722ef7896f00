"""A trainer on what was trained before: the same steps, whatever the graph around it says of ages."""

from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from flow import testing
from stages.checkpoint.best import BestWeights
from stages.records import Batch
from stages.train.gate import Gate, GateConfig
from stages.train.gated import Gated, GatedState
from stages.train.metrics import of_the_machine
from stages.train.retraced import Retraced

SIZES = ((2, 1), (1, 2), (2, 2))
"""Batches of each step, of so many segments each."""
LAGS = (0, 1, 1)
"""Of the batches of each step."""


@pytest.fixture
def gated(tiny: Any, trainer: Any) -> Any:
    def make() -> Gated:
        model = tiny()
        return Gated(trainer(model), Gate(GateConfig()), model, BestWeights(None))

    return make


@pytest.fixture
def steps(batches: Any) -> list[list[Batch]]:
    """Each batch with a birth of its own."""
    made = [batches(sizes, seed=number) for number, sizes in enumerate(SIZES)]
    return [[msgspec.structs.replace(batch, birth=2 * n + at) for at, batch in enumerate(step)] for n, step in enumerate(made)]


def trained(learner: Gated | Retraced, steps: list[list[Batch]], lags: Any = LAGS, save: Path | None = None) -> list[Any]:
    """(row without the figures of the machine, digest) of each step."""
    found: list[Any] = []

    async def main() -> None:
        async with learner:
            for step, lag in zip(steps, lags, strict=True):
                for batch in step:
                    await anyio.to_thread.run_sync(learner.add, batch, testing.context(lag=lag))
                await anyio.to_thread.run_sync(learner.finish, testing.context())
                if isinstance(learner, Gated):
                    found.append(seen(learner.last_row or {}, learner.digest()))
                    if save is not None and len(found) == 1:
                        learner.save(save)()
                        save.with_name("state").write_bytes(msgspec.msgpack.encode(learner.state()))

    anyio.run(main)
    return found


def seen(row: Any, digest: str) -> Any:
    return {name: value for name, value in row.items() if not of_the_machine(name)}, digest


def retraced(gated: Any, steps: list[list[Batch]], lags: Any = LAGS, **settings: Any) -> tuple[Retraced, list[Any]]:
    """What retraces them, which was told what to expect, and what it will have seen."""
    found: list[Any] = []
    learner = Retraced(gated(), lambda row, digest: found.append(seen(row, digest)), **settings)
    for step, lag in zip(steps, lags, strict=True):
        for batch in step:
            learner.expect(batch.birth, lag)
    return learner, found


def test_rows_and_parameters_of_every_step_are_those_of_the_run_and_so_are_ages(gated: Any, steps: list[list[Batch]]) -> None:
    whole = trained(gated(), steps)
    learner, found = retraced(gated, steps)
    trained(learner, steps, lags=(None, None, 7))
    assert found == whole
    assert [row["lag_max"] for row, _ in found] == list(LAGS)
    assert len({digest for _, digest in found}) == 3


def test_it_goes_on_after_what_a_commit_saved(gated: Any, steps: list[list[Batch]], tmp_path: Path) -> None:
    whole = trained(gated(), steps, save=tmp_path / "trainer")
    state = msgspec.msgpack.decode((tmp_path / "state").read_bytes(), type=GatedState)
    learner, found = retraced(gated, steps[1:], LAGS[1:], after=(tmp_path / "trainer", state))
    trained(learner, steps[1:], LAGS[1:])
    assert found == whole[1:]


def test_the_batches_of_the_step_that_is_asked_for_are_kept_and_of_no_other(gated: Any, steps: list[list[Batch]]) -> None:
    for keep, kept in ((2, steps[1]), (None, [])):
        learner, _ = retraced(gated, steps, keep=keep)
        trained(learner, steps)
        assert [batch.birth for batch in learner.kept] == [batch.birth for batch in kept]


def test_a_group_that_is_not_the_next_of_the_run_is_refused(gated: Any, steps: list[list[Batch]]) -> None:
    learner, _ = retraced(gated, steps[:1], LAGS[:1])
    with pytest.raises(ValueError, match=r"expected group 0, as in the run, got group 1, in the replay of step 1; replay with"):
        trained(learner, [steps[0][::-1]], LAGS[:1])
    learner, _ = retraced(gated, [], [])
    with pytest.raises(ValueError, match="expected none, as in the run, got group 0"):
        trained(learner, steps[:1], LAGS[:1])

"""A source of versions: gives what a cell has in force, beside the line that makes it, and ends when that has."""

import asyncio
import itertools
import math

import pytest

from flow import BuildError, Collect, Context, Freshness, Gathered, Graph, Items, Run, Stalled
from flow._core.moment import capture, restore
from flow._core.state import State
from flow.testing import run_virtual


class Counting:
    """A collector whose result is the number of the step, seconds after its last item."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.step, self._seconds = 0, seconds

    def add(self, value: int, context: Context) -> None:
        """Nothing to keep."""

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(self._seconds)
        self.step += 1
        return self.step


def line(got: list, *, steps: int | None = 3, items=None, look_s: float = 0.0, load=None, seconds=1.0):
    """A sink whose steps are published, and a branch that looks at every version."""

    async def look(version: int, context: Context) -> None:
        await asyncio.sleep(look_s)
        got.append(version)

    graph = Graph("line")
    cell = graph.latest("weights", int, load=load)
    trainer = graph.sink("trainer", Counting(seconds), collect=Collect(2, steps))
    _ = graph.source("source", itertools.count() if items is None else range(items)) >> trainer
    versions = graph.versions("versions", cell)
    seen = graph.sink("seen", look)
    _ = versions >> seen
    graph.edge(versions, seen, capacity=Items(1))
    graph.feedback(trainer, cell, initial=0)
    return graph


def test_every_version_that_is_in_force_is_given_the_first_one_too():
    got: list[int] = []
    # As the last node of a graph that has all its steps, the branch would be surplus: so it has no steps to complete here.
    run_virtual(Run(line(got, items=6, steps=None).build()).finish())
    assert got == [0, 1, 2, 3]


@pytest.mark.parametrize("steps", [None, 3])
def test_it_ends_when_the_writer_ends_whatever_ended_it(steps):
    """S22: a short source ends the writer before it has all its steps; the readers of versions end all the same."""
    got: list[int] = []
    summary = run_virtual(Run(line(got, items=4, steps=steps).build()).finish())
    assert summary.status == "completed"
    # A branch without steps of its own is surplus once every sink that has some is at its end.
    assert got == ([0, 1, 2] if steps is None else [0, 1])


def test_a_version_that_gave_way_while_there_was_no_room_is_passed_over():
    got: list[int] = []
    run_virtual(Run(line(got, items=20, steps=None, look_s=3.5).build()).finish())
    assert got[:2] == [0, 1]
    assert got[-1] == 10, "the last one is always given"
    assert len(got) < 8
    assert got == sorted(got)


def test_a_version_is_given_once_it_is_loaded_and_not_before():
    got: list[int] = []
    loaded: list[int] = []

    async def load(value: int, version: int) -> None:
        await asyncio.sleep(5)
        assert version not in got
        loaded.append(version)

    run_virtual(Run(line(got, items=6, steps=None, load=load).build()).finish())
    assert got[-1] == loaded[-1] == 3
    assert set(got) <= set(loaded)


@pytest.mark.parametrize("stop", ["drain", "suspend", "abort"])
def test_a_stop_ends_it_while_it_waits_for_a_version(stop):
    got: list[int] = []
    run = Run(line(got, seconds=50.0).build())

    async def main() -> str:
        task = asyncio.create_task(run.finish())
        await asyncio.sleep(20)
        asked = {"drain": run.drain, "suspend": run.suspend, "abort": lambda: run.abort(RuntimeError("enough"))}
        asked[stop]()
        began = asyncio.get_running_loop().time()
        try:
            return (await task).status
        except RuntimeError as error:
            return str(error)
        finally:
            assert asyncio.get_running_loop().time() - began < 200
            assert len(asyncio.all_tasks()) == 1

    assert run_virtual(main()) == {"drain": "drained", "suspend": "suspended", "abort": "enough"}[stop]


@pytest.mark.parametrize("seed", range(5))
def test_a_worker_that_is_killed_gives_no_version_twice(seed):
    got: list[int] = []
    run_virtual(Run(line(got, items=20, steps=None, look_s=0.1).build()).finish(), seed=seed, kill=0.2)
    assert got == sorted(set(got))
    assert got[-1] == 10


def test_a_moment_remembers_what_was_given():
    plan = line([]).build()
    before, after = State(plan), State(plan)
    before.nodes["versions"].given = 4
    restore(after, capture(before))
    assert after.nodes["versions"].given == 4


def test_who_waits_for_a_version_waits_for_its_writer():
    """W1: where the line that makes versions is a deadlock, the branch is stuck with it, and that is told at once."""
    graph = Graph("stuck", pools={"one": 1})
    cell = graph.latest("weights", int)

    async def hold(value: int, context: Context) -> int:
        async with context.permit("one"):
            return value

    trainer = graph.sink("trainer", Counting(), collect=Collect(1, 3))
    _ = graph.source("source", range(9)) >> graph.stage("hold", hold, needs={"one": 1}) >> trainer
    _ = graph.versions("versions", cell) >> graph.sink("seen", lambda value, context: None)
    graph.feedback(trainer, cell, initial=0)
    with pytest.raises(Stalled) as caught:
        run_virtual(Run(graph.build()).finish())
    assert "a deadlock: nobody works and nothing is on its way" in str(caught.value)
    assert "versions       1 waits for input weights (a newer version)" in str(caught.value)


@pytest.mark.parametrize("slow", ["writer", "load"])
def test_a_branch_that_waits_long_for_a_version_is_no_part_that_is_stuck(slow, caplog):
    """W1: while the writer works it may get one; and while one is loaded, also when the writer has come to its end."""

    async def load(value: int, version: int) -> None:
        await asyncio.sleep(40 if slow == "load" and version else 0)

    graph = line([], items=2, steps=None, load=load, seconds=40 if slow == "writer" else 0)
    other = graph.stage("other", wait_and_give)
    _ = graph.source("others", [1]) >> other >> graph.sink("kept", lambda value, context: None)
    summary = run_virtual(Run(graph.build(quiet=True)).finish())
    assert summary.status == "completed"
    assert "can never move again" not in caplog.text


async def wait_and_give(value: int, context: Context) -> int:
    """Works on all the while, so that the run as a whole is not what is looked at."""
    await asyncio.sleep(100)
    return value


class Held:
    """A load that waits for somebody outside, and says so."""

    waiting: str | None = None

    async def load(self, value: int, version: int) -> None:
        if version == 2:
            self.waiting = "waits for the measurement of version 1"
            await asyncio.sleep(math.inf)


def test_a_stall_report_tells_what_a_load_waits_for():
    """W1: the value is made and not in force; whoever holds it up is named."""
    with pytest.raises(Stalled) as caught:
        run_virtual(Run(line([], load=Held().load).build(), stall_s=60).finish())
    assert "cell weights   version 2 is being loaded, since 62 s: waits for the measurement of version 1" in str(caught.value)
    assert "not a deadlock of the graph: see which cell is being loaded" in str(caught.value)


def test_versions_of_a_cell_that_nobody_writes_are_refused():
    graph = Graph("g")
    cell = graph.latest("weights", int)
    _ = graph.versions("versions", cell) >> graph.sink("seen", lambda value, context: None)
    with pytest.raises(BuildError, match=r"(?s)B4.*a feedback edge that writes the cell.*'versions' reads it"):
        graph.build()


def test_versions_of_nothing_are_refused():
    graph = Graph("g")
    _ = graph.versions("versions", None) >> graph.sink("seen", lambda value, context: None)  # pyright: ignore
    with pytest.raises(BuildError, match=r"(?s)g\.versions\.reads.*pass the cell whose versions it gives"):
        graph.build()


def test_a_whole_branch_completes_its_own_steps_after_the_writer_has_its():
    """The line that measures has steps of its own; the last version is made by then, and still measured."""
    got: list[int] = []

    class Measure:
        def add(self, value: Gathered[int], context: Context) -> None:
            got.append(value.members[0])

        def finish(self, context: Context) -> int:
            return got[-1]

    async def slowly(value: int, context: Context) -> int:
        await asyncio.sleep(7)
        return value

    graph = Graph("line")
    cell, measured = graph.latest("weights", int), graph.latest("measured", int)
    trainer = graph.sink("trainer", Counting(1), collect=Collect(2, 3))
    _ = graph.source("source", itertools.count()) >> trainer
    graph.feedback(trainer, cell, initial=0)
    versions = graph.versions("versions", cell)
    members = graph.repeat("members", versions, n=2)
    work = graph.stage("work", slowly, workers=2)
    measure = graph.sink("measure", Measure(), collect=Collect(1, steps=2))
    _ = versions >> members >> work >> graph.group("groups", work) >> measure
    graph.edge(versions, members, capacity=Items(1))
    graph.feedback(measure, measured, freshness=Freshness(0))
    summary = run_virtual(Run(graph.build()).finish())
    assert summary.status == "completed"
    assert got[0] == 0
    assert len(got) == 2

"""Three ways to stop before the end, from wherever one likes, and none of them waits for ever."""

import asyncio
import itertools
import threading

import pytest

from flow import Collect, Context, Drop, Gathered, Graph, Retry, Run, StageFailed, Summary, Threads
from flow.testing import run_virtual


def numbers_through(work, count=10**9, sink=None, **settings) -> tuple[Graph, list]:
    """Numbers through one stage into a list."""
    got: list = []
    graph = Graph("line")
    stage = graph.stage("stage", work, **settings)
    _ = graph.source("source", range(count)) >> stage >> graph.sink("sink", sink or (lambda value, context: got.append(value)))
    return graph, got


async def second_long(value: int, context: Context) -> int:
    await asyncio.sleep(1)
    return value


def stopped(graph: Graph, after_s: float, stop, **options) -> tuple[Run, Summary]:
    """A run on which ``stop`` is called in the midst."""

    async def main() -> tuple[Run, Summary]:
        run = Run(graph.build(), **options)
        asyncio.get_running_loop().call_later(after_s, stop, run)
        return run, await run.finish()

    return run_virtual(main())


def test_draining_ends_the_source_and_finishes_what_is_on_its_way():
    """Section 3.7: nothing is dropped, nothing given back, and it does not look as if all had been done."""
    graph, got = numbers_through(second_long, workers=3)
    run, summary = stopped(graph, 5.5, Run.drain)
    assert (summary.status, summary.balanced, dict(summary.leftovers)) == ("drained", True, {})
    assert sorted(got) == list(range(run.state.nodes["source"].output.put_count))
    assert 15 < len(got) < 30
    assert summary.nodes["stage"].given_back == 0


def test_groups_and_steps_end_by_their_policies_when_a_run_is_drained():
    """Section 3.7, G2: open groups fill up, a step that cannot is dropped."""
    steps: list[int] = []

    class Learner:
        def add(self, group: Gathered[int], context: Context) -> None:
            steps.append(group.birth)

        def finish(self, context: Context) -> None: ...

    graph = Graph("groups")
    tasks = graph.source("tasks", itertools.count())
    members = graph.repeat("members", tasks, n=4)
    stage = graph.stage("stage", second_long, workers=2)
    _ = tasks >> members >> stage >> graph.group("groups", stage) >> graph.sink("learn", Learner(), collect=Collect(4))
    _, summary = stopped(graph, 7.5, Run.drain)
    assert (summary.status, dict(summary.leftovers), dict(summary.open_groups)) == ("drained", {}, {"groups": 0})
    assert steps == list(range(len(steps)))
    assert summary.nodes["learn"].dropped == ({"incomplete step": len(steps) % 4} if len(steps) % 4 else {})
    assert len(steps) % 4 > 0


def test_a_source_that_waits_for_room_still_sends_what_it_has_in_hand():
    graph, got = numbers_through(second_long)
    run, summary = stopped(graph, 2.5, Run.drain)
    assert got == list(range(summary.nodes["source"].emitted))
    assert run._staff.crews[0].in_hand is None


@pytest.mark.slow
def test_a_source_that_is_blocked_on_a_thread_hears_of_the_end_soon():
    """S2, pub_sub#85: its poll is given up; what it still brings is thrown away, and counted."""
    begun, may_end = threading.Event(), threading.Event()

    def poll():
        yield 0
        begun.set()
        may_end.wait(20)
        yield 1

    got: list[int] = []
    graph = Graph("fed")
    source = graph.source("source", poll(), placement=Threads())
    _ = source >> graph.sink("sink", lambda value, context: got.append(value))

    async def main() -> tuple[Summary, int]:
        run = Run(graph.build(), closing_s=5)
        task = asyncio.create_task(run.finish())
        await asyncio.to_thread(begun.wait, 10)
        run.drain()
        await asyncio.sleep(1.05)  # a second, then it is given up
        may_end.set()
        return await task, run.state.nodes["source"].meter.lost["late result"]

    summary, late = asyncio.run(main())
    assert (got, summary.status, late, summary.abandoned) == ([0], "drained", 1, ())


@pytest.mark.parametrize("how", ["drain", "suspend", "abort"])
@pytest.mark.parametrize("placement", [{}, {"placement": Threads()}])
def test_a_stage_may_ask_for_the_end_from_inside_and_returns(how, placement):
    """Section 3.7: it asks and goes on; nobody waits for anybody."""
    runs: list[Run] = []
    after: list[int] = []

    def ask(value: int, context: Context) -> int:
        if value == 5:
            run = runs[0]
            {"drain": run.drain, "suspend": lambda: run.suspend(5), "abort": lambda: run.abort(OSError("disk"))}[how]()
            after.append(value)
        return value

    graph, got = numbers_through(ask, **placement)

    async def main() -> str:
        runs.append(Run(graph.build()))
        async with asyncio.timeout(10):
            try:
                return str((await runs[0].finish()).status)
            except OSError as error:
                return str(error)

    assert asyncio.run(main()) == {"drain": "drained", "suspend": "suspended", "abort": "disk"}[how]
    assert after == [5]
    assert got == list(range(len(got)))


def test_suspending_lets_attempts_end_that_end_in_time():
    """Section 3.7: those under way are done or given back, no other is begun, and no end is signalled."""
    begun: list[int] = []

    async def work(value: int, context: Context) -> int:
        begun.append(value)
        await asyncio.sleep(100 if value == 7 else 1)
        return value

    graph, got = numbers_through(work, workers=3)
    run, summary = stopped(graph, 2.5, lambda run: run.suspend(within_s=4))
    assert (summary.status, summary.faults, summary.seconds) == ("suspended", (), pytest.approx(6.5))
    assert (sorted(begun), sorted(got)) == (list(range(9)), list(range(6)))
    assert sorted(item.value for item in run.state.nodes["sink"].input.buffer) == [6, 8]  # done, and not done again
    assert run.state.nodes["stage"].input.buffer[0].value == 7  # to be done again
    assert [node.input.closed for node in run.state.nodes.values() if node.input is not None] == [False, False]


def test_suspending_ends_as_soon_as_no_attempt_is_under_way():
    graph, _ = numbers_through(second_long, workers=3)
    _, summary = stopped(graph, 2.5, lambda run: run.suspend(within_s=1000))
    assert summary.seconds == pytest.approx(3, abs=0.1)
    assert summary.nodes["stage"].given_back == 0


def test_suspending_waits_for_no_pause_before_a_retry_and_flushes_no_group():
    async def work(value: int, context: Context) -> int:
        if context.member == 3:
            raise ValueError("again")
        return value

    graph = Graph("groups")
    tasks = graph.source("tasks", range(2))
    members = graph.repeat("members", tasks, n=4)
    stage = graph.stage("stage", work, workers=4, on_error=Retry(5, then=Drop(), backoff_s=100))
    _ = tasks >> members >> stage >> graph.group("groups", stage) >> graph.sink("sink", lambda value, context: None)
    _, summary = stopped(graph, 5, lambda run: run.suspend(within_s=50))
    assert (summary.status, summary.faults, summary.seconds) == ("suspended", (), pytest.approx(5, abs=0.1))
    assert (summary.open_groups, summary.nodes["sink"].taken) == ({"groups": 2}, 0)


def test_a_step_of_a_sink_may_be_completed_while_a_run_is_suspended():
    log: list[str] = []

    class Learner:
        async def add(self, value: int, context: Context) -> None:
            await asyncio.sleep(1)

        async def finish(self, context: Context) -> None:
            await asyncio.sleep(1)
            log.append("step")

    graph = Graph("steps")
    _ = graph.source("source", range(10**9)) >> graph.sink("learn", Learner(), collect=Collect(2))
    _, summary = stopped(graph, 2.5, lambda run: run.suspend(within_s=100))
    assert log[0] == "step"
    assert (summary.status, summary.faults) == ("suspended", ())


def test_the_first_call_wins_and_only_a_stronger_one_follows():
    """Section 3.7: drain, then suspend, then abort; never back."""
    graph, _ = numbers_through(second_long, workers=2)

    def back(run: Run) -> None:
        run.suspend(within_s=0.2)
        run.drain()
        run.suspend(within_s=1000)

    _, summary = stopped(graph, 2.5, back)
    assert (summary.status, summary.seconds) == ("suspended", pytest.approx(2.7))

    def up(run: Run) -> None:
        run.drain()
        run.suspend()

    _, summary = stopped(graph, 2.5, up)
    assert (summary.status, summary.seconds) == ("suspended", pytest.approx(2.5))

    def further(run: Run) -> None:
        run.suspend(within_s=1000)
        run.abort(OSError("enough"))
        run.abort(OSError("too late"))

    with pytest.raises(OSError, match="enough"):
        stopped(graph, 2.5, further)


@pytest.mark.parametrize("how", ["drain", "suspend", "abort"])
def test_a_run_may_be_stopped_before_it_starts(how):
    graph, got = numbers_through(second_long)
    run = Run(graph.build())
    {"drain": run.drain, "suspend": run.suspend, "abort": lambda: run.abort(OSError("no"))}[how]()
    if how == "abort":
        with pytest.raises(OSError, match="no"):
            run_virtual(run.finish())
    else:
        assert run_virtual(run.finish()).status == {"drain": "drained", "suspend": "suspended"}[how]
    assert got == []


def test_an_abort_stops_the_opening_of_stages():
    log: list[str] = []

    class Slow:
        async def __aenter__(self) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                log.append("not opened")
                raise

        async def __aexit__(self, *_: object) -> None: ...

        async def __call__(self, value: int, context: Context) -> int:
            return value

    graph, _ = numbers_through(Slow())
    with pytest.raises(OSError, match="enough"):
        stopped(graph, 2, lambda run: run.abort(OSError("enough")))
    assert log == ["not opened"]


def test_stages_that_fail_in_the_same_moment_are_raised_together():
    """Section 3.6, S12: one error each; of one stage the first, which says how many more."""

    async def broken(value: int, context: Context) -> int:
        await asyncio.sleep(1)
        raise ValueError(f"number {value}")

    graph = Graph("two")
    for name in ("left", "right"):
        stage = graph.stage(name, broken, workers=3)
        _ = graph.source(f"{name}s", range(3)) >> stage >> graph.sink(f"{name} end", lambda value, context: None)
    with pytest.raises(ExceptionGroup, match="2 stages of graph 'two' failed in the same moment") as both:
        run_virtual(Run(graph.build()).finish())
    assert {error.node for error in both.value.exceptions if isinstance(error, StageFailed)} == {"left", "right"}

    graph, _ = numbers_through(broken, workers=3)
    with pytest.raises(StageFailed, match="number") as one:
        run_virtual(Run(graph.build()).finish())
    assert one.value.__notes__[0] == "and 2 more of its attempts failed in the same moment"

"""A run that stopped moving says who waits for what, and whether it can ever end; then it fails rather than hangs."""

import asyncio

import pytest

from flow import Context, Drop, Gathered, Graph, Items, Retry, Run, Stalled
from flow.testing import VirtualLoop, run_virtual


async def lock_itself(value: int, context: Context) -> int:
    """Asks for a unit of the pool all of which it holds already."""
    await asyncio.sleep(value)
    async with context.permit("sandbox"):
        return value


async def never_ends(value: int, context: Context) -> int:
    await asyncio.sleep(0 if value < 2 else 10**7)
    return value


def show(value: int, context: Context) -> None:
    """Shows nothing."""


def line(work, **settings) -> Graph:
    graph = Graph("line", pools={"sandbox": 2})
    source, stage, sink = graph.source("source", range(20)), graph.stage("stage", work, **settings), graph.sink("sink", show)
    _ = source >> stage >> sink
    graph.edge(source, stage, capacity=Items(3))
    return graph


def stall(graph: Graph, **options) -> tuple[str, float]:
    """Report of a run that stalls, and the virtual second in which it came."""
    # Who waits longest depends on who is served first in the same instant, which is the seed's to say.
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed=2)) as runner:
        with pytest.raises(Stalled) as caught:
            runner.run(Run(graph.build(), **options).finish())
        return str(caught.value), runner.get_loop().time()


def test_a_deadlock_is_told_within_seconds():
    """W1, W3, S2: everybody waits and nothing is on its way, so nobody waits ten minutes for the report."""
    report, second = stall(line(lock_itself, workers=2, needs={"sandbox": 1}))
    assert report.splitlines() == [
        "stalled 2 s: nothing was committed; a deadlock: nobody works and nothing is on its way",
        "  source         1 wait for room on source->stage, longest 3 s",
        "  stage          2 wait for pool sandbox, longest 3 s",
        "  sink           1 wait for input stage->sink, longest 3 s",
        "  pool sandbox   2/2 units out, 2 requests wait",
    ]
    assert second == pytest.approx(3, abs=1.5)


def test_a_slow_call_outside_is_no_deadlock_and_gets_its_time():
    """W2, S6: told apart from a deadlock, with the time it has taken; the time is a parameter."""
    report, second = stall(line(never_ends, workers=2), stall_s=120.0)
    assert report.splitlines()[0].endswith("not a deadlock: see who is in a call outside")
    assert "  stage          2 in user code, longest 12" in report
    assert 120 <= second <= 123


def test_a_long_call_is_left_alone_where_nothing_is_bounded():
    async def long(value: int, context: Context) -> int:
        await asyncio.sleep(5000 if value == 3 else 0)
        return value

    assert run_virtual(Run(line(long).build(), stall_s=None).finish()).seconds == pytest.approx(5000)
    assert run_virtual(Run(line(long).build(), stall_s=6000).finish()).seconds == pytest.approx(5000)


def test_the_pause_before_a_retry_is_no_deadlock():
    def work(value: int, context: Context) -> int:
        if context.retry == 0:
            raise ValueError("again")
        return value

    graph = line(work, on_error=Retry(1, then=Drop(), backoff_s=60))
    assert run_virtual(Run(graph.build()).finish()).nodes["stage"].retried == 20


def test_a_task_of_a_stage_that_waits_for_a_permit_beside_one_that_works_is_no_deadlock():
    """The stage's own tasks share one lane: as long as the stage is in user code, nobody knows that it cannot go on."""

    async def both(value: int, context: Context) -> int:
        async def use(seconds: float) -> None:
            async with context.permit("sandbox", 2):
                await asyncio.sleep(seconds)

        await asyncio.gather(use(30), use(30))
        return value

    assert run_virtual(Run(line(both).build()).finish()).seconds == pytest.approx(20 * 60)


def test_a_group_that_lacks_members_is_in_the_report():
    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(10**7 if context.member == 2 else 1)
        return value

    graph = Graph("g")
    tasks = graph.source("tasks", range(1))
    members = graph.repeat("members", tasks, n=3)
    stage = graph.stage("work", work, workers=3)
    groups = graph.group("groups", stage)

    def take(group: Gathered[int], context: Context) -> None:
        """Takes all."""

    _ = tasks >> members >> stage >> groups >> graph.sink("sink", take)
    report, _ = stall(graph, stall_s=50.0)
    assert "  groups         1 open groups, 1 members missing" in report
    assert "tasks " not in report  # it has ended and waits for nothing

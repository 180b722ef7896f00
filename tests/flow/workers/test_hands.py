"""What every worker has: pool units and permits, threads to run on, the cell it reads, and room to wait for."""

import asyncio
import threading
import time

import pytest

from flow import Context, Drop, Graph, Items, Node, Retry, Run, StageFailed, Summary, Threads
from flow.testing import run_virtual

END_S = 10_000.0
"""Virtual seconds no test needs."""


def line(work, count=6, pools=None, sink=None, rates=None, **settings) -> tuple[Graph, list]:
    """Numbers through one stage into a list."""
    got: list = []

    def keep(value: object, context: Context) -> None:
        got.append(value)

    graph = Graph("line", pools=pools, rates=rates)
    source, stage = graph.source("source", range(count)), graph.stage("stage", work, **settings)
    _ = source >> stage >> graph.sink("sink", sink or keep)
    return graph, got


def finish(graph: Graph, seed: int = 0, kill: float = 0.0, **options) -> Summary:
    async def main() -> Summary:
        async with asyncio.timeout(END_S):
            return await Run(graph.build(), **options).finish()

    return run_virtual(main(), seed=seed, kill=kill)


def test_pool_units_are_held_only_while_the_code_runs():
    """S3, S13: not while waiting for room, nor in the pause before a retry; afterwards all are free."""
    inside: list[int] = []
    most: list[int] = []

    async def work(value: int, context: Context) -> int:
        inside.append(value)
        most.append(len(inside))
        await asyncio.sleep(1)
        inside.remove(value)
        if value == 0 and context.retry == 0:
            raise ValueError("again")
        return value

    graph, got = line(work, count=6, pools={"engine": 2}, workers=6, needs={"engine": 1}, on_error=Retry(1, backoff_s=50))
    run_state = {}

    async def main() -> Summary:
        run = Run(graph.build())
        run_state["pools"] = run.state.pools
        return await run.finish()

    summary = run_virtual(main())
    assert sorted(got) == list(range(6))
    assert max(most) == 2
    assert summary.seconds == pytest.approx(52)  # 0 works for 1 s, pauses 50 s while the others pass, works again
    assert run_state["pools"].free == {"engine": 2}


def test_a_permit_for_a_part_of_the_work_is_given_back_after_a_failure():
    """S13, S32: also when the work raises inside."""

    async def work(value: int, context: Context) -> int:
        async with context.permit("sandbox"):
            await asyncio.sleep(1)
            if value == 1:
                raise ValueError("broken")
        return value

    graph, got = line(work, count=4, pools={"sandbox": 1}, workers=4, on_error=Drop())
    summary = finish(graph)
    assert sorted(got) == [0, 2, 3]
    assert summary.seconds == pytest.approx(4)
    assert summary.nodes["stage"].shares["pool"] > 0


def test_a_permit_may_be_of_a_pool_and_a_rate_at_once():
    """Two units of 1.5 s, two starts a second: starts at 0, 0.5, then as units come back, at 1.5 and 2, and again."""
    started: list[float] = []

    async def work(value: int, context: Context) -> int:
        async with context.permit({"sandbox": 1, "search": 1}):
            started.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1.5)
        return value

    graph, _ = line(work, pools={"sandbox": 2}, rates={"search": 2}, workers=6)
    finish(graph)
    assert [time - started[0] for time in started] == pytest.approx([0, 0.5, 1.5, 2, 3, 3.5])


def test_a_permit_of_a_rate_alone_is_a_start_that_is_not_given_back():
    async def work(value: int, context: Context) -> int:
        async with context.permit("search"):
            return value

    graph, _ = line(work, count=5, rates={"search": 4}, workers=5)
    assert finish(graph).seconds == pytest.approx(1)


def test_a_permit_nobody_can_have_is_an_error_at_once():
    async def work(value: int, context: Context) -> int:
        async with context.permit("sandbox", 3):
            return value

    graph, _ = line(work, pools={"sandbox": 2})
    with pytest.raises(StageFailed, match="asks for 3 of pool 'sandbox', which has 2"):
        finish(graph)


def test_reading_a_cell_that_was_not_declared_is_an_error():
    graph, _ = line(lambda value, context: context.read().value)
    with pytest.raises(StageFailed, match=r"reads a cell, but declares none; pass reads=\.\.\. where it is declared"):
        finish(graph)


def test_blocking_code_on_threads_leaves_the_loop_alone():
    """S24: eight calls that block run side by side, and a ticker on the loop keeps ticking."""
    barrier = threading.Barrier(8, timeout=10)
    names: set[str] = set()

    def block(value: int, context: Context) -> int:
        names.add(threading.current_thread().name)
        barrier.wait()  # passes only if all eight are inside at once
        time.sleep(0.03)
        return value

    graph, got = line(block, count=8, workers=8, placement=Threads())

    async def main() -> int:
        ticks = 0
        task = asyncio.create_task(Run(graph.build()).finish())
        while not task.done():
            await asyncio.sleep(0.002)
            ticks += 1
        await task
        return ticks

    assert asyncio.run(main()) >= 5
    assert sorted(got) == list(range(8))
    assert len(names) == 8
    assert all(name.startswith("headrace-stage") for name in names)


def test_asynchronous_work_on_threads_is_awaited():
    """S67: a coroutine object never passes for a result."""

    async def work(value: int, context: Context) -> int:
        return 2 * value

    graph, got = line(work, count=3, placement=Threads())
    asyncio.run(Run(graph.build()).finish())
    assert got == [0, 2, 4]


@pytest.mark.parametrize("placement", [{}, {"placement": Threads()}])
def test_a_stage_that_raises_stop_iteration_does_not_hang(placement):
    graph, _ = line(lambda value, context: next(iter([])), **placement)
    with pytest.raises(StageFailed, match="StopIteration"):
        asyncio.run(asyncio.wait_for(Run(graph.build()).finish(), 5))


def test_a_cancel_waits_for_the_thread_and_then_counts():
    """S21: a thread cannot be stopped in the middle, so nothing of the run outlives it."""
    inside, may_end = threading.Event(), threading.Event()

    def block(value: int, context: Context) -> int:
        inside.set()
        may_end.wait(10)
        return value

    graph, got = line(block, count=3, placement=Threads())

    async def main() -> Summary:
        run = Run(graph.build())
        task = asyncio.create_task(run.finish())
        await asyncio.to_thread(inside.wait, 10)
        run.suspend()
        await asyncio.sleep(0.01)
        assert not task.done()
        may_end.set()
        return await task

    summary = asyncio.run(main())
    assert (got, summary.status, summary.nodes["stage"].given_back) == ([], "suspended", 1)
    assert not [t for t in threading.enumerate() if t.name.startswith("headrace-stage")]


def test_a_slow_consumer_bounds_what_waits_before_it():
    """Back-pressure: no edge ever holds more than its bound, whatever the source could give."""
    drawn: list[int] = []

    async def slowly(value: int, context: Context) -> None:
        await asyncio.sleep(1)
        ahead.append(len(drawn) - value)

    def draw(value: int, context: Context) -> int:
        drawn.append(value)
        return value

    ahead: list[int] = []
    graph, _ = line(draw, count=200, workers=2, sink=slowly)
    source, stage, sink = (Node(graph, name) for name in ("source", "stage", "sink"))
    graph.edge(source, stage, capacity=Items(3))
    graph.edge(stage, sink, capacity=Items(5))
    summary = finish(graph)
    assert summary.nodes["stage"].high_water == 3
    assert summary.nodes["sink"].high_water == 5
    assert max(ahead) <= 5 + 2 + 1  # the edge, a result in each worker's hands, the one at the sink
    assert summary.nodes["stage"].shares["output"] > 0.9

"""Where items come from: iterables and objects with ``draw``, on the loop or on a thread."""

import asyncio
import threading

import pytest

from flow import Context, Graph, Run, StageFailed, Threads
from flow.testing import run_virtual


def line(source, sink=None, **settings) -> tuple[Graph, list[tuple[int, tuple[int, ...]]]]:
    got: list[tuple[int, tuple[int, ...]]] = []

    def keep(value: int, context: Context) -> None:
        got.append((value, context.path))

    graph = Graph("line")
    _ = graph.source("source", source, **settings) >> graph.sink("sink", sink or keep)
    return graph, got


class Countdown:
    def __init__(self, start: int) -> None:
        self.left = start

    def draw(self) -> int:
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        return self.left


@pytest.mark.parametrize("source", [[2, 1, 0], iter([2, 1, 0]), Countdown(3)])
def test_items_are_numbered_in_the_order_they_are_drawn(source):
    graph, got = line(source)
    run_virtual(Run(graph.build()).finish())
    assert got == [(2, (0,)), (1, (1,)), (0, (2,))]


def test_a_source_that_ends_closes_the_run():
    """S3: the end of the data is an end, with what was done reported."""
    graph, _ = line([])
    summary = run_virtual(Run(graph.build()).finish())
    assert (summary.status, summary.nodes["source"].emitted) == ("completed", 0)


def test_a_source_that_fails_ends_the_run_after_nothing_else():
    """S10: an error is not an end."""

    def numbers():
        yield 1
        raise OSError("disk gone")

    graph, _ = line(numbers())
    with pytest.raises(StageFailed, match=r"stage 'source' failed at item 1 .*OSError: disk gone"):
        run_virtual(Run(graph.build()).finish())


@pytest.mark.parametrize("seed", range(10))
def test_a_source_that_is_killed_loses_nothing_and_draws_nothing_twice(seed):
    async def slowly(value: int, context: Context) -> None:
        await asyncio.sleep(1)
        got.append(value)

    graph, got = line(range(20), sink=slowly)
    run_virtual(Run(graph.build()).finish(), seed=seed, kill=0.3)
    assert sorted(got) == list(range(20))


def test_what_a_thread_draws_while_its_worker_is_cancelled_is_kept():
    """S19: the value is in no future that dies with the worker."""
    drawing, go_on = threading.Event(), threading.Event()

    class Slow:
        drawn = 0

        def draw(self) -> int:
            if self.drawn == 3:
                raise StopIteration
            self.drawn += 1
            if self.drawn == 2:
                drawing.set()
                go_on.wait(10)
            return self.drawn

    graph, got = line(Slow(), placement=Threads())

    async def main() -> None:
        task = asyncio.create_task(Run(graph.build()).finish())
        await asyncio.to_thread(drawing.wait, 10)
        (worker,) = [t for t in asyncio.all_tasks() if t.get_name() == "source worker"]
        worker.cancel()
        await asyncio.sleep(0.005)
        go_on.set()
        await task

    asyncio.run(main())
    assert got == [(1, (0,)), (2, (1,)), (3, (2,))]


def test_the_time_after_the_end_is_no_work_of_the_source():
    async def slowly(value: int, context: Context) -> None:
        await asyncio.sleep(100)

    graph, _ = line([1], sink=slowly)
    summary = run_virtual(Run(graph.build()).finish())
    assert summary.nodes["source"].seconds < 1
    assert summary.nodes["sink"].shares["work"] == pytest.approx(1)

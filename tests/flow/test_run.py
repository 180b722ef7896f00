"""A run as a whole: opened and closed once, stopped three ways, nothing left behind, and every item accounted for."""

import asyncio
import gc
import threading
import warnings

import pytest

from flow import Context, Graph, Run, StageFailed, Summary, Threads
from flow.testing import run_virtual
from flow.trace import LoopLag


class Resource:
    """A stage that must be opened and closed."""

    def __init__(self, log: list[str], name: str = "stage", *, fail: str = "") -> None:
        self._log, self._name, self._fail = log, name, fail

    async def __aenter__(self) -> "Resource":
        self._log.append(f"open {self._name}")
        if self._fail == "open":
            raise OSError("no device")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._log.append(f"close {self._name}")
        if self._fail == "close":
            raise OSError("stuck")

    async def __call__(self, value: int, context: Context) -> int:
        await asyncio.sleep(1)
        if self._fail == "work":
            raise ValueError("broken")
        return value


def line(*stages, count=5, sink=None, workers=1, **settings) -> tuple[Graph, list]:
    got: list = []

    def keep(value: object, context: Context) -> None:
        got.append(value)

    graph = Graph("line")
    node = graph.source("source", range(count))
    for index, stage in enumerate(stages):
        node = node >> graph.stage(f"stage{index}", stage, workers=workers, **settings)
    _ = node >> graph.sink("sink", sink or keep)
    return graph, got


def test_a_stage_is_opened_and_closed_once_the_last_in_the_line_first():
    """S31: whoever takes is ready before whoever gives, also for a stage that stands in two places."""
    log: list[str] = []
    one, two = Resource(log, "one"), Resource(log, "two")
    graph, got = line(one, two, one, workers=3)
    run_virtual(Run(graph.build()).finish())
    assert log == ["open one", "open two", "close two", "close one"]
    assert sorted(got) == list(range(5))


@pytest.mark.parametrize("fail", ["open", "work"])
def test_stages_are_closed_after_a_failure_too(fail):
    """S31: once for each that was opened."""
    log: list[str] = []
    graph, _ = line(Resource(log, "first", fail=fail), Resource(log, "second"))
    with pytest.raises((OSError, StageFailed)):
        run_virtual(Run(graph.build()).finish())
    closed = ["close first", "close second"] if fail == "work" else ["close second"]
    assert log == ["open second", "open first", *closed]


def test_a_failure_to_close_is_told():
    """S99: nothing is only logged."""
    graph, _ = line(Resource([], fail="close"))
    with pytest.raises(OSError, match="stuck"):
        run_virtual(Run(graph.build()).finish())


def test_a_failure_to_close_does_not_hide_what_ended_the_run():
    """S12: the first error stays on top, the second is noted on it."""
    graph, _ = line(Resource([], fail="work"), Resource([], fail="close"))
    with pytest.raises(StageFailed, match="ValueError: broken") as caught:
        run_virtual(Run(graph.build()).finish())
    assert caught.value.__notes__[0] == "and closing a stage failed: OSError: stuck"
    assert caught.value.__notes__[1].startswith("stage 'stage0' is declared at test_run.py:")


def suspended(graph: Graph, after_s: float, seed: int = 0) -> tuple[Run, Summary]:
    async def main() -> tuple[Run, Summary]:
        run = Run(graph.build())
        asyncio.get_running_loop().call_later(after_s, run.suspend)
        async with asyncio.timeout(1000):
            return run, await run.finish()

    return run_virtual(main(), seed=seed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("after_s", [0.0, 0.5, 3.2, 7.7])
def test_suspending_gives_every_lease_back_and_loses_nothing(seed, after_s):
    """S13: what was taken is done or waits where it was; pools are full again; no end was signalled."""
    graph, got = line(Resource([]), Resource([]), count=100, workers=3)
    run, summary = suspended(graph, after_s, seed)
    assert (summary.status, summary.faults) == ("suspended", ())
    channels = [node.input for node in run.state.nodes.values() if node.input is not None]
    assert [channel.leased for channel in channels] == [0] * 3
    waiting = sorted(item.value for channel in channels for item in channel.buffer)
    assert sorted([*got, *waiting]) == list(range(run.state.nodes["source"].output.put_count))
    assert not any(channel.closed for channel in channels)


def test_suspending_before_the_start_starts_nothing():
    graph, got = line(Resource([]))

    async def main() -> Summary:
        run = Run(graph.build())
        run.suspend()
        return await run.finish()

    assert (run_virtual(main()).status, got) == ("suspended", [])


def test_suspending_after_the_end_changes_nothing():
    graph, _ = line()

    async def main() -> str | None:
        run = Run(graph.build())
        await run.finish()
        run.suspend()
        return run.summary().status

    assert run_virtual(main()) == "completed"


def test_a_cancelled_run_stops_its_workers_and_is_cancelled():
    """S9: a true cancel from outside goes through."""
    log: list[str] = []
    graph, _ = line(Resource(log), count=100)

    async def main() -> Run:
        run = Run(graph.build())
        task = asyncio.create_task(run.finish())
        await asyncio.sleep(3.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return run

    run = run_virtual(main())
    assert log == ["open stage", "close stage"]
    assert run.summary().status == "suspended"


@pytest.mark.parametrize("fail", ["", "work"])
def test_stages_are_closed_with_the_error_of_the_run(fail):
    """S12: a stage that saves or commits at its end must know that the run failed; it may not swallow that either."""
    seen: list[str] = []

    class Asks(Resource):
        async def __aexit__(self, kind: object, error: object, trace: object) -> bool:
            seen.append(str(error))
            return True

    graph, _ = line(Asks([], fail=fail))

    async def main() -> Run:
        run = Run(graph.build())
        try:
            await run.finish()
        except StageFailed:
            assert fail
        return run

    assert run_virtual(main()).summary().status == ("failed" if fail else "completed")
    message = "stage 'stage0' failed at item 0 (retry 0, attempt 0): ValueError: broken"
    assert seen == [message if fail else "None"]


@pytest.mark.parametrize("fail", ["open", "close"])
def test_a_run_whose_stage_cannot_be_opened_or_closed_has_failed(fail):
    graph, _ = line(Resource([], fail=fail))

    async def main() -> Run:
        run = Run(graph.build())
        with pytest.raises(OSError, match=r"no device|stuck"):
            await run.finish()
        return run

    assert run_virtual(main()).summary().status == "failed"


@pytest.mark.parametrize("how", ["completed", "failed", "suspended"])
def test_nothing_is_left_behind(how):
    """S8, S12, S26: no task, no thread, no warning of an exception that nobody read, however the run ended."""

    def on_thread(value: int, context: Context) -> int:
        if how == "failed" and value == 3:
            raise ValueError("broken")
        return value

    graph, _ = line(on_thread, Resource([], fail="work" if how == "failed" else ""), count=50 if how == "suspended" else 2)
    graph = graph.with_("stage0", placement=Threads(), workers=2)
    complaints: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: complaints.append(str(context)))
        run = Run(graph.build(), lag=LoopLag())
        if how == "suspended":
            loop.call_later(0.02, run.suspend)
        try:
            await run.finish()
        except StageFailed:
            assert how == "failed"
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await asyncio.sleep(0)

    threads = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()
    assert complaints == []
    assert threading.active_count() == threads


def test_workers_are_held_so_that_garbage_collection_cannot_take_them():
    """S23: the loop keeps only weak references to tasks."""

    async def work(value: int, context: Context) -> int:
        gc.collect() if value % 20 == 0 else None
        await asyncio.sleep(1)
        return value

    graph, got = line(work, count=100, workers=100)
    run_virtual(Run(graph.build()).finish())
    assert sorted(got) == list(range(100))


def test_two_failures_in_one_moment_end_the_run_with_the_first():
    """S12: the others are retrieved, so nothing warns of them later."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(1)
        raise ValueError(f"number {value}")

    graph, _ = line(work, workers=4)
    with pytest.raises(StageFailed, match="number"):
        run_virtual(Run(graph.build()).finish())


def test_a_worker_that_is_killed_is_replaced():
    """S11, S14: any number of times; its item is tried again with the next attempt number."""
    attempts: list[tuple[int, int]] = []

    async def work(value: int, context: Context) -> int:
        attempts.append((value, context.attempt))
        if context.attempt < 3:
            workers = [task for task in asyncio.all_tasks() if task.get_name() == "stage0 worker"]
            asyncio.get_running_loop().call_soon(workers[0].cancel)
            await asyncio.sleep(5)
        return value

    graph, got = line(work, count=2)
    summary = run_virtual(Run(graph.build()).finish())
    assert attempts == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert (got, summary.nodes["stage0"].given_back) == ([0, 1], 6)


class Looker:
    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    def committed(self, node: str, values) -> None:
        self.seen.extend((node, value) for value in values)

    def reported(self, node: str, row) -> None:
        self.seen.append((f"{node} row", dict(row)))


def test_who_watches_hears_of_every_commit_and_row_also_from_threads():
    looker = Looker()

    def work(value: int, context: Context) -> int:
        context.report({"squared": value**2, "thread": threading.current_thread() is threading.main_thread()})
        return -value

    graph, _ = line(work, count=3)
    asyncio.run(Run(graph.with_("stage0", placement=Threads()).build(), watchers=[looker]).finish())
    rows = [value for name, value in looker.seen if name == "stage0 row"]
    assert rows == [{"squared": n**2, "thread": False} for n in range(3)]
    assert [value for name, value in looker.seen if name == "stage0"] == [0, -1, -2]


def test_a_watcher_that_fails_ends_the_run():
    looker = Looker()
    looker.reported = lambda node, row: 1 / 0

    def work(value: int, context: Context) -> int:
        context.report({})
        return value

    graph, _ = line(work)
    with pytest.raises(ZeroDivisionError):
        run_virtual(Run(graph.build(), watchers=[looker]).finish())


def test_the_summary_tells_where_time_and_items_went():
    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(3)
        return value

    async def slow(value: int, context: Context) -> None:
        await asyncio.sleep(1)

    graph, _ = line(work, count=4, sink=slow)
    summary = run_virtual(Run(graph.build()).finish())
    assert (summary.graph, summary.status, summary.seconds, summary.balanced) == ("line", "completed", 13, True)
    stage, sink = summary.nodes["stage0"], summary.nodes["sink"]
    assert (stage.taken, stage.emitted, sink.taken) == (4, 4, 4)
    assert (stage.shares["work"], stage.seconds) == (1.0, 12)
    assert sink.shares["work"] == pytest.approx(4 / 13)
    assert sink.shares["input"] == pytest.approx(9 / 13)
    assert all(sum(node.shares.values()) == pytest.approx(1) for node in (stage, sink))


def test_a_summary_can_be_read_before_during_and_after():
    graph, _ = line(Resource([]))

    async def main() -> list[tuple[str | None, float]]:
        run = Run(graph.build())
        seen = [(run.summary().status, run.summary().seconds)]
        task = asyncio.create_task(run.finish())
        await asyncio.sleep(2)
        seen.append((run.summary().status, run.summary().seconds))
        await task
        await asyncio.sleep(5)
        return [*seen, (run.summary().status, run.summary().seconds)]

    assert run_virtual(main()) == [(None, 0.0), (None, 2.0), ("completed", 5.0)]


def test_a_run_is_finished_once():
    graph, _ = line()

    async def main() -> None:
        run = Run(graph.build())
        await run.finish()
        await run.finish()

    with pytest.raises(RuntimeError, match="expected a new run, got one that was started before"):
        run_virtual(main())


def test_the_same_seed_gives_the_same_run():
    def once() -> tuple[list, dict]:
        graph, got = line(Resource([]), Resource([]), count=30, workers=4)
        summary = run_virtual(Run(graph.build()).finish(), seed=7, kill=0.1)
        return got, {name: (node.taken, node.given_back) for name, node in summary.nodes.items()}

    assert once() == once()

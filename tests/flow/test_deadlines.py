"""Deadlines of attempts: one timer serves all of a run, whatever their lengths."""

import asyncio

from flow._deadlines import Timer
from flow.testing import run_virtual


def test_deadlines_expire_one_by_one_on_one_timer():
    async def main() -> list[tuple[str, float]]:
        loop, log = asyncio.get_running_loop(), []
        timer = Timer()
        deadlines = timer.deadlines(10.0)

        async def work(name: str, start: float, takes: float) -> None:
            await asyncio.sleep(start)
            task = asyncio.current_task()
            assert task is not None
            assert deadlines.set(task) == start + 10
            try:
                await asyncio.sleep(takes)
            except asyncio.CancelledError:
                log.append((f"{name} {'expired' if deadlines.clear(task) else 'cancelled'}", loop.time()))
                task.uncancel()
                return
            log.append((f"{name} {'expired' if deadlines.clear(task) else 'done'}", loop.time()))

        others = [asyncio.create_task(work("slow", 0, 99)), asyncio.create_task(work("quick", 1, 5))]
        last = asyncio.create_task(work("last", 2, 99))
        killed = asyncio.create_task(work("killed", 3, 99))
        loop.call_at(4, killed.cancel)
        await asyncio.wait([*others, last, killed])
        assert len(deadlines) == 0
        timer.close()
        return log

    assert run_virtual(main()) == [("killed cancelled", 4), ("quick done", 6), ("slow expired", 10), ("last expired", 12)]


def test_without_a_deadline_nothing_is_timed():
    async def main() -> None:
        deadlines, task = Timer().deadlines(None), asyncio.current_task()
        assert task is not None
        assert deadlines.set(task) is None
        assert not deadlines.clear(task)

    run_virtual(main())


def test_deadlines_of_several_lengths_share_the_timer():
    async def main() -> tuple[list[tuple[str, float]], list[int]]:
        loop, timer, log, timers = asyncio.get_running_loop(), Timer(), [], []

        async def work(name: str, start: float, length_s: float) -> None:
            await asyncio.sleep(start)
            task = asyncio.current_task()
            assert task is not None
            queue = timer.deadlines(length_s)
            queue.set(task)
            try:
                await loop.create_future()
            except asyncio.CancelledError:
                assert queue.passed(task)
                assert queue.clear(task)
                assert not queue.passed(task)
                log.append((name, loop.time()))

        tasks = [asyncio.create_task(work(*row)) for row in [("a", 0, 100), ("b", 1, 7), ("c", 2, 100), ("d", 3, 1)]]
        await asyncio.sleep(3.5)
        timers.append(sum(not handle.cancelled() for _, _, handle in loop._timers))
        await asyncio.wait(tasks)
        timer.close()
        timer.close()
        return log, timers

    assert run_virtual(main()) == ([("d", 4), ("b", 8), ("a", 100), ("c", 102)], [1])


def test_nodes_of_one_length_share_a_queue():
    timer = Timer()
    assert timer.deadlines(5.0) is timer.deadlines(5.0)
    assert timer.deadlines(5.0) is not timer.deadlines(6.0)

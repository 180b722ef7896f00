"""Waiting: a wake-up is never lost, and the deadlines of one node share one timer."""

import asyncio

from flow._park import Deadlines, Parker
from flow.testing import run_virtual


def test_a_wake_up_before_the_sleep_counts():
    async def main() -> None:
        parker = Parker()
        parker()
        async with asyncio.timeout(1):
            await parker.wait()

    run_virtual(main())


def test_one_wake_up_wakes_once():
    async def main() -> list[str]:
        parker, log = Parker(), []

        async def sleeper() -> None:
            while True:
                await parker.wait()
                log.append("awake")

        task = asyncio.create_task(sleeper())
        for _ in range(3):
            await asyncio.sleep(1)
            parker()
            parker()
        await asyncio.sleep(1)
        task.cancel()
        return log

    assert run_virtual(main()) == ["awake"] * 3


def test_a_wake_up_survives_the_cancel_of_the_sleeper():
    """C3, S19: the next one to sleep there hears of it."""

    async def main() -> None:
        parker = Parker()
        task = asyncio.create_task(parker.wait())
        await asyncio.sleep(1)
        parker()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        async with asyncio.timeout(1):
            await parker.wait()

    run_virtual(main())


def test_deadlines_expire_one_by_one_on_one_timer():
    async def main() -> list[tuple[str, float]]:
        loop, log = asyncio.get_running_loop(), []
        deadlines = Deadlines(10.0)

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
        deadlines.close()
        return log

    assert run_virtual(main()) == [("killed cancelled", 4), ("quick done", 6), ("slow expired", 10), ("last expired", 12)]


def test_without_a_deadline_nothing_is_timed():
    async def main() -> None:
        deadlines, task = Deadlines(None), asyncio.current_task()
        assert task is not None
        assert deadlines.set(task) is None
        assert not deadlines.clear(task)

    run_virtual(main())

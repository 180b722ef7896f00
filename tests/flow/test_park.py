"""Waiting: a wake-up is never lost, and what must be outlasted is, up to a bound."""

import asyncio

from flow._park import Parker, Pump, outlast
from flow.testing import run_virtual

END = object()


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


def test_outlasting_ends_with_the_last_or_at_its_bound_whatever_is_cancelled():
    async def main() -> list[tuple[float, bool]]:
        loop, log = asyncio.get_running_loop(), []

        async def wait(length_s: float, bound_s: float) -> None:
            bound = loop.create_future()
            timer = loop.call_at(bound_s, bound.set_result, None)
            sleeper = asyncio.create_task(asyncio.sleep(length_s))
            cancelled = await outlast([sleeper, sleeper], bound)
            log.append((loop.time(), cancelled is not None))
            timer.cancel()
            sleeper.cancel()

        tasks = [asyncio.create_task(wait(5, 9)), asyncio.create_task(wait(99, 8))]
        for _ in range(3):
            await asyncio.sleep(1)
            tasks[1].cancel()
        await asyncio.wait(tasks)
        return log

    assert run_virtual(main()) == [(5, False), (8, True)]


def test_what_is_over_is_not_waited_for():
    async def main() -> float:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        done.set_result(None)
        assert await outlast([done]) is None
        assert await outlast([loop.create_future()], done) is None
        return loop.time()

    assert run_virtual(main()) == 0


def test_an_error_of_a_step_is_raised_though_its_worker_is_cancelled_before_it_heard_of_it():
    """C3: a source that raised is at its end the second time, and nobody would learn why."""

    async def main() -> BaseException | None:
        steps = iter([None])

        def step() -> None:
            if next(steps, END) is END:
                raise ValueError("drawn")

        pump = Pump(step, Parker())
        task = asyncio.get_running_loop().create_task(pump.run())
        await asyncio.sleep(0)
        pump()
        await asyncio.sleep(0)  # the step raised, and the wake-up of its task is on its way
        task.cancel()
        await asyncio.wait([task])
        return None if task.cancelled() else task.exception()

    assert isinstance(asyncio.run(main()), ValueError)

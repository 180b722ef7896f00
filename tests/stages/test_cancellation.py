import asyncio

import pytest

from stages.cancellation import cancel_requested, to_the_end


def test_work_is_done_before_a_native_cancellation_goes_on():
    """S28: cancelled at every step of the work."""
    done = []

    async def work() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        done.append(True)

    async def main() -> None:
        task = asyncio.create_task(to_the_end(work()))
        while not task.done():
            await asyncio.sleep(0)
            task.cancel()
        assert done == [True]
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_work_that_fails_raises_and_is_the_cause_of_a_cancellation():
    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError("disk full")

    async def cancelled() -> BaseException | None:
        task = asyncio.create_task(to_the_end(fail()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        return raised.value.__cause__

    with pytest.raises(OSError, match="disk full"):
        asyncio.run(to_the_end(fail()))
    assert isinstance(asyncio.run(cancelled()), OSError)


def test_only_a_cancellation_of_the_running_task_counts_as_asked_for():
    async def main() -> tuple[bool, bool]:
        before = cancel_requested()
        asyncio.current_task().cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return before, cancel_requested()

    assert asyncio.run(main()) == (False, True)

"""Virtual time: it jumps where everybody sleeps, the order is the seed's, and a graph that cannot move is an error."""

import asyncio
import time

import pytest

from flow.testing import VirtualLoop, run_virtual


def test_hours_pass_in_no_time():
    async def main() -> float:
        await asyncio.sleep(3600)
        await asyncio.sleep(0.25)
        return asyncio.get_running_loop().time()

    before = time.perf_counter()
    assert run_virtual(main()) == pytest.approx(3600.25)
    assert time.perf_counter() - before < 1


def order(seed: int) -> list[int]:
    async def main() -> list[int]:
        log: list[int] = []

        async def step(number: int) -> None:
            await asyncio.sleep(1)
            log.append(number)

        await asyncio.gather(*(step(number) for number in range(8)))
        return log

    return run_virtual(main(), seed=seed)


def test_tasks_that_are_due_together_run_in_the_order_of_the_seed():
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1
    assert sorted(order(3)) == list(range(8))


def test_callbacks_keep_their_order():
    """asyncio promises it, and code relies on it."""

    async def main() -> list[int]:
        log: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(log.append, number)
        await asyncio.sleep(1)
        return log

    assert run_virtual(main(), seed=5) == list(range(20))


def test_a_wait_that_can_never_end_is_an_error():
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="every task waits and no timer is set"):
        run_virtual(main())


def test_only_workers_are_killed():
    async def main() -> tuple[int, int]:
        async def sleep(times: int) -> None:
            for _ in range(times):
                await asyncio.sleep(1)

        workers = [asyncio.create_task(sleep(20), name=f"{number} worker") for number in range(20)]
        others = [asyncio.create_task(sleep(20), name=f"{number} collector") for number in range(20)]
        await asyncio.wait([*workers, *others])
        return sum(task.cancelled() for task in workers), sum(task.cancelled() for task in others)

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed=3, kill=0.1)) as runner:
        killed, spared = runner.run(main())
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        assert (killed > 10, spared, loop.kills >= killed) == (True, 0, True)

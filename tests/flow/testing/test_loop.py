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


def workers_of(loop: VirtualLoop, work, count: int = 20) -> list[asyncio.Task]:
    async def main() -> list[asyncio.Task]:
        tasks = [asyncio.create_task(work(), name=f"{number} worker") for number in range(count)]
        await asyncio.wait(tasks)
        return tasks

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


async def sleep_often() -> None:
    for _ in range(20):
        await asyncio.sleep(1)


def test_a_share_of_the_killed_workers_leaves_for_good():
    loop = VirtualLoop(seed=3, kill=0.1, leave=0.5)
    killed = [task for task in workers_of(loop, sleep_often) if task.cancelled()]
    leaving = [task for task in killed if loop.leaves(task)]
    assert 0 < len(leaving) < len(killed)
    assert loop.left == len(leaving)
    assert not any(loop.leaves(task) for task in leaving)  # it is asked once


def test_late_steps_come_some_passes_later_and_take_no_time():
    def passes(late: float) -> tuple[int, float]:
        async def main() -> int:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while running:
                    ticks += 1
                    await asyncio.sleep(0)

            async def yields() -> None:
                for _ in range(50):
                    await asyncio.sleep(0)
                running.clear()

            running = [True]
            await asyncio.gather(yields(), tick())
            return ticks

        with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed=1, late=late)) as runner:
            return runner.run(main()), runner.get_loop().time()

    (_, calm_s), (_, late_s) = passes(0.0), passes(0.5)
    assert (calm_s, late_s) == (0.0, 0.0)
    assert passes(0.0)[0] in (50, 51, 52)
    assert passes(0.5) == passes(0.5)
    assert passes(0.5) != passes(0.0)


def test_slow_steps_of_workers_come_up_to_a_second_later():
    loop = VirtualLoop(seed=1, slow=0.3)
    workers_of(loop, sleep_often)
    assert 20 < loop.time() < 60
    calm = VirtualLoop(seed=1)
    workers_of(calm, sleep_often)
    assert calm.time() == 20


def test_time_past_the_deadline_is_an_error_even_where_a_timer_always_comes():
    async def main() -> None:
        for _ in range(10**6):
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError, match="expected an end within 100 virtual seconds"):
        run_virtual(main(), deadline_s=100)


def test_threads_are_played_on_the_loop_a_random_time_later():
    """Work that blocks holds up whoever waits for it, and nobody else."""

    async def main() -> tuple[int, float, list[float]]:
        loop = asyncio.get_running_loop()
        ticks: list[float] = []

        def compute(number: int) -> int:
            loop.block(10)
            return number + 1

        async def tick() -> None:
            for _ in range(5):
                await asyncio.sleep(1)
                ticks.append(loop.time())

        beside = asyncio.create_task(tick())
        result = await asyncio.to_thread(compute, 1)
        await beside
        return result, loop.time(), ticks

    result, took_s, ticks = run_virtual(main(), seed=4)
    assert (result, ticks) == (2, [1, 2, 3, 4, 5])
    assert 10 < took_s < 10.2


def test_an_error_on_a_thread_reaches_who_waits_and_a_cancelled_one_never_runs():
    async def main() -> list[str]:
        loop, log = asyncio.get_running_loop(), []

        def fail() -> None:
            raise OSError("disk")

        with pytest.raises(OSError, match="disk"):
            await loop.run_in_executor(None, fail)
        future = loop.run_in_executor(None, log.append, "ran")
        future.cancel()
        await asyncio.sleep(5)
        return log

    assert run_virtual(main()) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: asyncio.open_connection("localhost", 80),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 80),
        lambda: asyncio.start_server(print, port=0),
    ],
)
def test_what_lives_in_real_time_is_refused(call):
    async def main() -> None:
        await call()

    with pytest.raises(RuntimeError, match=r"expected code that lives in virtual time, got a call of .* on a VirtualLoop"):
        run_virtual(main())


def test_cancelled_timers_do_not_pile_up():
    async def main() -> int:
        loop = asyncio.get_running_loop()
        for _ in range(5000):
            loop.call_later(1e6, print).cancel()
        return len(loop._timers)

    assert run_virtual(main()) < 500


def test_an_error_in_a_callback_is_told_and_the_loop_goes_on(caplog):
    async def main() -> str:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)
        return "alive"

    assert run_virtual(main()) == "alive"
    assert "ZeroDivisionError" in caplog.text


def test_an_interrupt_leaves_what_was_due_to_the_closing():
    closed = []

    async def main() -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        async def hold() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                closed.append("hold")

        task = asyncio.create_task(hold())
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_soon(interrupt)
        await task

    with pytest.raises(KeyboardInterrupt):
        run_virtual(main())
    assert closed == ["hold"]

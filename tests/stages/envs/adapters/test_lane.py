import threading
import time

import anyio
import pytest

from stages.envs.adapters.lane import Lane


def test_calls_of_a_lane_run_one_at_a_time_and_off_the_loop():
    """S24."""
    inside, most, threads = 0, 0, set()

    def work():
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threads.add(threading.current_thread())
        time.sleep(0.002)
        inside -= 1

    async def run():
        lane = Lane()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(lane.run, work)

    anyio.run(run)
    assert most == 1
    assert threading.main_thread() not in threads


def test_a_call_that_was_given_up_holds_up_the_next_one_not_its_caller():
    go, order = threading.Event(), []

    async def run():
        lane = Lane()
        with anyio.move_on_after(0.01):
            await lane.run(lambda: (go.wait(5), order.append("late")))
        order.append("gave up")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lane.close, lambda: order.append("closed"))
            go.set()

    anyio.run(run)
    assert order == ["gave up", "late", "closed"]


def test_nothing_runs_after_close_and_close_runs_once():
    """S31."""
    ran = []

    async def run():
        lane = Lane()
        await lane.close(lambda: ran.append("closed"))
        await lane.close(lambda: ran.append("again"))
        with pytest.raises(RuntimeError, match="one that was closed"):
            await lane.run(lambda: ran.append("more"))

    anyio.run(run)
    assert ran == ["closed"]


def test_calls_that_hang_hold_up_no_other_environment():
    go = threading.Event()

    async def run():
        with anyio.move_on_after(0.05):
            async with anyio.create_task_group() as tasks:
                for _ in range(50):  # more than anyio's own limit of threads
                    tasks.start_soon(Lane().run, lambda: go.wait(5))
        try:
            with anyio.fail_after(2):
                assert await Lane().run(lambda: "done") == "done"
        finally:
            go.set()

    anyio.run(run)

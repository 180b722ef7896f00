"""An environment is made once and closed once, whatever happens while it is made."""

import asyncio
import threading
import time

import pytest

from stages.envs.custom import CustomEnv
from stages.envs.housed import Housed, on_loop
from stages.envs.task_env import TaskEnv
from stages.records import Task

TASK = Task("t", "go")


class Counted(CustomEnv):
    closed = 0

    def reset(self, task, key):
        return task.prompt

    def step(self, message):
        return "on"

    def close(self):
        Counted.closed += 1


@pytest.fixture(autouse=True)
def fresh():
    Counted.closed = 0
    threads = threading.active_count()
    yield
    assert threading.active_count() == threads


def late(task):
    time.sleep(0.05)
    return Counted()


def test_a_plain_function_is_called_off_the_loop_in_the_thread_of_its_environment():
    made_in = []

    def make(task):
        made_in.append(threading.get_ident())
        return Counted()

    async def main():
        housed = Housed(make)
        await housed.open(TASK)
        await housed.close()

    asyncio.run(main())
    assert made_in != [threading.get_ident()]
    assert Counted.closed == 1


@pytest.mark.parametrize("waits", [True, False])
def test_what_is_made_after_the_wait_was_given_up_is_closed_too(waits):
    """S28: whether closing waits for it, or is given up as well."""

    async def main():
        housed = Housed(late)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(housed.open(TASK), 0.01)
        if waits:
            await housed.close()
            assert Counted.closed == 1
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(housed.close(), 0.01)
        await asyncio.sleep(0.1)

    asyncio.run(main())
    assert Counted.closed == 1


def test_a_coroutine_function_that_is_cut_short_is_cancelled():
    cut = []

    async def make(task):
        try:
            await asyncio.sleep(60)
        finally:
            cut.append(task.id)

    async def main():
        housed = Housed(make)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(housed.open(TASK), 0.01)
        await housed.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert cut == ["t"]


def test_a_plain_function_may_be_called_on_the_loop():
    async def main():
        housed, threads = Housed(on_loop(lambda task: TaskEnv())), threading.active_count()
        await housed.open(TASK)
        await housed.close()
        assert threading.active_count() == threads

    asyncio.run(main())


def test_what_could_not_be_made_is_not_closed():
    async def main():
        housed = Housed(lambda task: {}["key"])
        with pytest.raises(KeyError):
            await housed.open(TASK)
        await housed.close()
        await Housed(late).close()

    asyncio.run(main())
    assert Counted.closed == 0

"""Environments that are used again: bounded, thrown away when they fail, never lost."""

import asyncio

import pytest

from stages.envs.environment import Opening, Reply
from stages.envs.pool import EnvPool
from stages.records import Message, Task

TASK, KEY = Task("t", "go"), (0, 0, 0, 0)


class Plays:
    """Fails to reset for tasks that say so."""

    alive = 0

    def __init__(self):
        Plays.alive += 1

    async def reset(self, task, key):
        if task.prompt == "break":
            raise OSError("broken")
        return Opening((Message("user", task.prompt),))

    async def step(self, message):
        await asyncio.sleep(0 if message.content != "hang" else 60)
        return Reply((Message("user", "on"),))

    async def score(self):
        return {"reward": 1.0}

    async def close(self):
        Plays.alive -= 1


@pytest.fixture(autouse=True)
def none_left():
    Plays.alive = 0
    yield
    assert Plays.alive == 0


async def make(task):
    return Plays()


async def episode(pool, prompt="go", said="6"):
    env = await pool.take(TASK)
    try:
        await env.reset(Task("t", prompt), KEY)
        await env.step(Message("assistant", said))
        return await env.score()
    finally:
        await env.close()


def test_a_sound_environment_is_used_again():
    async def main():
        pool = EnvPool(make, 2)
        for _ in range(5):
            await episode(pool)
        assert (pool.num_made, pool.num_idle, pool.num_lent) == (1, 1, 0)
        await pool.close()
        assert pool.num_idle == 0

    asyncio.run(main())


def test_no_more_than_its_size_are_alive_and_who_wants_another_waits_in_order():
    async def main():
        pool = EnvPool(make, 4)
        order, most = [], 0

        async def one(number):
            nonlocal most
            env = await pool.take(TASK)
            order.append(number)
            most = max(most, Plays.alive)
            await asyncio.sleep(0)
            await env.close()

        await asyncio.gather(*(one(number) for number in range(20)))
        assert order == list(range(20))
        assert (most, pool.num_made) == (4, 4)
        await pool.close()

    asyncio.run(main())


def test_one_whose_reset_raises_is_replaced_and_the_pool_keeps_its_size():
    """S32: a pool of 4, of 10 episodes 2 fail in reset; it ends with 4, and made no more than the replacements."""

    async def main():
        pool = EnvPool(make, 4)
        prompts = ["break" if number in (3, 7) else "go" for number in range(10)]
        outcomes = await asyncio.gather(*(episode(pool, prompt) for prompt in prompts), return_exceptions=True)
        assert [isinstance(outcome, OSError) for outcome in outcomes] == [prompt == "break" for prompt in prompts]
        assert (pool.num_lent, Plays.alive) == (0, pool.num_idle)
        assert pool.num_made <= 4 + 2
        four = [await pool.take(TASK) for _ in range(4)]
        assert pool.num_lent == 4
        for env in four:
            await env.close()
        await pool.close()

    asyncio.run(main())


def test_one_that_was_cut_short_in_a_call_is_thrown_away():
    async def main():
        pool = EnvPool(make, 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(episode(pool, said="hang"), 0.01)
        assert (pool.num_idle, pool.num_lent, Plays.alive) == (0, 0, 0)
        await episode(pool)
        await pool.close()

    asyncio.run(main())


def test_one_that_cannot_be_made_leaves_its_room():
    async def refuse(task):
        raise OSError("no image")

    async def main():
        pool = EnvPool(refuse, 1)
        for _ in range(3):
            with pytest.raises(OSError, match="no image"):
                await pool.take(TASK)
        assert pool.num_lent == 0

    asyncio.run(main())


def test_no_room_is_lost_to_a_cancellation_at_any_moment():
    """S28: natively cancelled while it waits, and in the very step in which it is granted room."""

    async def main():
        pool = EnvPool(make, 1)
        for passes in range(8):
            holder = await pool.take(TASK)
            waiter = asyncio.create_task(episode(pool))
            await asyncio.sleep(0)
            closing = asyncio.create_task(holder.close())
            for _ in range(passes):
                await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.gather(waiter, closing, return_exceptions=True)
            assert pool.num_lent == 0
        await pool.close()

    asyncio.run(main())


def test_one_that_cannot_be_closed_is_told_and_the_others_are_closed(caplog):
    """S30."""

    class Sticky(Plays):
        async def close(self):
            if self is made[1]:
                raise OSError("busy")
            await super().close()

    made = []

    async def make_sticky(task):
        made.append(Sticky())
        return made[-1]

    async def main():
        pool = EnvPool(make_sticky, 3)
        for env in [await pool.take(TASK) for _ in range(3)]:
            await env.close()
        await pool.close()
        assert Plays.alive == 1
        await Plays.close(made[1])

    asyncio.run(main())
    assert "could not be closed: OSError('busy')" in caplog.text


def test_an_empty_pool_is_refused():
    with pytest.raises(ValueError, match="expected at least one environment, got size=0"):
        EnvPool(make, 0)

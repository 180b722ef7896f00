"""What the tests of all adapters do: hold a conversation whose turns are known, and close what held it, whatever comes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stages.envs.environment import Opening, Reply
from stages.envs.housed import Housed
from stages.records import Message, Task

Held = tuple[Opening, list[Reply], dict[str, float] | None]
"""How it opened, the replies up to the end, and the score."""


@pytest.fixture
def hold() -> Callable[..., Held]:
    """Give an environment turns, texts or messages, until it ends."""

    async def held(env: Any, task: Task, turns: Iterable[str | Message], key: tuple[int, int, int, int]) -> Held:
        housed = Housed(lambda task: env)
        try:
            hosted = await housed.open(task)
            opening = await hosted.reset(task, key)
            replies = []
            for turn in turns:
                replies.append(await hosted.step(turn if isinstance(turn, Message) else Message("assistant", turn)))
                if replies[-1].end is not None:
                    break
            return opening, replies, await hosted.score()
        finally:
            await housed.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return lambda *conversation: asyncio.run(held(*conversation))

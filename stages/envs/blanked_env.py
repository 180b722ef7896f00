"""An environment out of which no secret comes that its episode has used: not in a message, not in an error.

Not the calls of tools, whose answers and audit rows are blanked where they are made (``tools/audited.py``). Put around every
environment by the episode stage, and by the process of one that has its own.
"""

from typing import Any

import msgspec

from stages.envs.environment import Environment, Opening, Reply
from stages.records import Message, Task
from stages.tools.credentials import blanked, blanked_errors


class BlankedEnv:
    """An environment whose words are blanked.

    Args:
        env: the environment. What it gives that is no answer at all is handed on as it is.
    """

    def __init__(self, env: Environment):
        self._env = env

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``."""
        with blanked_errors():
            opening = await self._env.reset(task, key)
        if not isinstance(opening, Opening):
            return opening
        return msgspec.structs.replace(opening, messages=_blanked(opening.messages))

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``."""
        with blanked_errors():
            reply = await self._env.step(message)
        if not isinstance(reply, Reply):
            return reply
        reason = blanked(reply.reason) if isinstance(reply.reason, str) else reply.reason
        return msgspec.structs.replace(reply, messages=_blanked(reply.messages), reason=reason)

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        with blanked_errors():
            return await self._env.score()

    async def close(self) -> None:
        """See ``Environment.close``."""
        with blanked_errors():
            await self._env.close()


def _blanked(messages: Any) -> Any:
    """The messages; anything else as it is, for who checks answers to tell."""
    if not isinstance(messages, tuple | list):
        return messages
    return type(messages)(_told(message) for message in messages)


def _told(message: Any) -> Any:
    if not isinstance(message, Message) or not isinstance(message.content, str):
        return message
    return msgspec.structs.replace(message, content=blanked(message.content))

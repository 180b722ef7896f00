"""What an environment is: it opens a conversation, answers turns, may score, and is closed once.

It sees messages, never tokens, and never asks a model. Made afresh for each episode by the episode stage, which also puts a
time limit on every method and calls ``close`` exactly once, whatever happened. One of your own is shorter with ``custom.py``.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from stages.records import Message, Status, Task
from stages.tools.tool import Tool

Scorer = Callable[[Task, Sequence[Message]], dict[str, float]]
"""The task and the assistant's messages of an episode -> reward by name of its part."""


class Opening(msgspec.Struct, frozen=True):
    """How a conversation begins."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    on_invalid: Literal["answer", "end"] | None = None
    """What comes of an invalid call in this task: it is answered with an error, or it ends the episode; ``None`` leaves it to
    ``task.extra["on_invalid"]``, and where that says nothing, to the agent."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to a turn."""

    messages: tuple[Message, ...] = ()
    """What the model reads next: one tool message per call of a tool that is shown, matched by id, and any user messages. With
    an end, the true last observation: what the model would have read."""
    end: Literal[Status.FINISHED, Status.TRUNCATED_TURNS] | None = None
    """``None`` while the episode goes on. Finished: by the rules of the task. Truncated: cut short by a limit."""
    reason: str | None = None
    """One line on why a limit cut it short; ``None`` otherwise."""
    reward: float | None = None
    """What the turn earned, a finite number: ``Turn.reward`` of the episode. ``None`` where single turns are not rewarded.
    Beside the score, not instead of it: what of it is trained is for the reward stage to say."""


class Environment(Protocol):
    """One episode's environment."""

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """Begin.

        Args:
            task: what to do.
            key: (seed, birth, member, retry): decides every random draw, and names the episode to the outside.
        """
        ...

    async def step(self, message: Message) -> Reply:
        """Answer a complete turn of the assistant. Never called after a reply with ``end``.

        A turn may have calls also where no tool is shown. Those of tools that are shown are to be answered, each once, under
        its own id; what is left unanswered of others is answered with an error for it.
        """
        ...

    async def score(self) -> dict[str, float] | None:
        """Reward by part once the episode is over; ``None`` leaves it to the reward stage."""
        ...

    async def close(self) -> None:
        """Free what ``reset`` took, also where ``reset`` failed or was cancelled midway."""
        ...


def opening_messages(task: Task, system: str | None = None) -> tuple[Message, ...]:
    """The task's prompt as a user message, after a system message where there is one."""
    user = Message("user", task.prompt)
    return (user,) if system is None else (Message("system", system), user)

"""What a tool is: a name, a description, a schema of its arguments, and a call that always answers.

A model can only learn from what it reads, so a wrong argument, an exception and a missed deadline are all answers. Two things
are not: a cancellation that somebody asked for, and ``BrokenToolError``, by which a tool says that its outcome would say
nothing about the policy. Tools made of plain functions are in ``function.py``,
of classes with a state in ``methods.py``.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec


class BrokenToolError(RuntimeError):
    """Raised by a tool whose backend is down: the episode ends as ``tool_error`` instead of teaching the model anything."""


class ToolAnswer(msgspec.Struct, frozen=True):
    """What came of a call."""

    text: str
    """For the model; bounded in length."""
    outcome: Literal["answer", "invalid", "failed"] = "answer"
    """``invalid``: the arguments do not fit the schema, the model's mistake. ``failed``: the tool's own."""


class Tool(Protocol):
    """Something a model may call."""

    @property
    def name(self) -> str:
        """Name the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """What it does, for the model."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of its arguments, an object schema."""
        ...

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """Answer one call.

        Args:
            arguments: as the model wrote them, not validated.
            key: (seed, birth, member, retry, turn, call): decides every random draw a tool makes, so that runs repeat.

        Raises:
            BrokenToolError: the outcome says nothing about the policy.
        """
        ...


@runtime_checkable
class Toolset(Protocol):
    """Tools that have something of their own for each episode: state, a process, a connection."""

    def open(self, key: tuple[int, int, int, int]) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """The tools of one episode, entered when it begins. Leaving frees all they took, also where entering was cancelled.

        It may be entered in one task and left in another, so no cancel scope may stay open in between.

        Args:
            key: (seed, birth, member, retry) of the episode.
        """
        ...


@runtime_checkable
class NeedsPermits(Protocol):
    """A tool whose calls take units of pools, or starts of rates, of the graph; or what is shown of such a tool."""

    @property
    def needs(self) -> Mapping[str, int]:
        """What a call asks the graph for, by name, all at once."""
        ...


def needs_of(tool: object) -> Mapping[str, int]:
    """What a call of a tool asks the graph for; nothing where it does not say."""
    return tool.needs if isinstance(tool, NeedsPermits) else {}


def failure(reason: str) -> ToolAnswer:
    """An answer that tells the model what went wrong in the tool."""
    return ToolAnswer(f"error: {reason}", "failed")


def bounded(text: str, max_chars: int) -> str:
    """The text, or its beginning and how long it was. What no file could hold, a lone surrogate, becomes ``?``.

    Args:
        text: what a tool gave.
        max_chars: bound in characters; ``limits.py`` has the one in tokens.
    """
    if len(text) > max_chars:
        note = f" [cut: {len(text)} characters]"
        text = text[: max(0, max_chars - len(note))] + note[:max_chars]
    return text.encode(errors="replace").decode()

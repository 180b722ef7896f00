"""What the calls of a tool have of the run around them: permits, the size of text in tokens, the audit log, a name for effects.

A context variable, since a tool is a plain function whose arguments are the model's. The run sets where audit rows go, the
episode stage sets the rest; where nobody did, as in a test of a tool alone, permits are granted at once and nothing is told.
Threads that a call runs in see it too.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from flow import Context
from stages.tools.audit import inherited_audit


@contextlib.asynccontextmanager
async def _at_once(needs: Mapping[str, int]) -> AsyncGenerator[None]:
    yield


class UndeclaredPoolError(LookupError):
    """A tool names a pool or a rate that the graph lacks, which is no failure of an episode: it ends the run."""


def permit_of(context: Context) -> Callable[[Mapping[str, int]], AbstractAsyncContextManager[None]]:
    """Permits of the graph that an attempt belongs to.

    Returns:
        Holds units by name; raises ``UndeclaredPoolError`` on entry.
    """

    @contextlib.asynccontextmanager
    async def permit(needs: Mapping[str, int]) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as held:
            try:
                await held.enter_async_context(context.permit(needs))
            except LookupError as error:
                raise UndeclaredPoolError(str(error)) from error
            yield

    return permit


def key_of(context: Context, run: str) -> str:
    """What names the effects of an attempt: ``run/node/path/retry``.

    Args:
        context: of the attempt.
        run: see ``ToolContext``.
    """
    node, path, retry = context.key
    return "/".join(part for part in (run, node, ".".join(map(str, path)), str(retry)) if part)


@dataclass(frozen=True)
class ToolContext:
    """The surroundings of a call.

    Attributes:
        permit: holds units of pools and draws starts of rates, by name, all at once.
        count_tokens: tokens that a text takes in a tool's reply; ``None`` where no format of conversations is known.
        audit: takes one row for each call.
        attempt: executions of the episode before, after a cancel or a crash.
        run: name of the run, and of its graph under way; empty outside of one.
        key: names this execution's effects to whoever is outside: the episode, in a tool the call, never two of one run alike.
            The same when the episode is executed again after a cancel or a kill, and another for a retry, which is to differ.
    """

    permit: Callable[[Mapping[str, int]], AbstractAsyncContextManager[None]] = _at_once
    count_tokens: Callable[[str], int] | None = None
    audit: Callable[[Mapping[str, Any]], None] = inherited_audit
    attempt: int = 0
    run: str = ""
    key: str = ""


_ALONE = ToolContext()
_CURRENT: ContextVar[ToolContext] = ContextVar("tool context")


def tool_context() -> ToolContext:
    """The surroundings of the running task."""
    return _CURRENT.get(_ALONE)


def set_tool_context(**changes: Any) -> None:
    """Change the surroundings for the rest of the running task, and of the tasks and threads it starts from now on.

    Args:
        changes: fields of ``ToolContext``.
    """
    _CURRENT.set(replace(tool_context(), **changes))


@contextlib.contextmanager
def tool_context_with(**changes: Any) -> Generator[None]:
    """Change the surroundings for a block. Arguments as of ``set_tool_context``."""
    token = _CURRENT.set(replace(tool_context(), **changes))
    try:
        yield
    finally:
        _CURRENT.reset(token)

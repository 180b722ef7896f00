"""What bounds a call of a tool: its deadline, the pool and the rate it starts under, and the size of its answer.

Whatever a tool is made of, its calls go through ``limited``, which always gives an answer. Pools and rates are the graph's own,
reached through ``context.py``.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pydantic

from stages.cancellation import cancel_requested
from stages.exits import exits_as_errors
from stages.tools.context import tool_context
from stages.tools.credentials import blanked
from stages.tools.tool import BrokenToolError, ToolAnswer, bounded, failure


class ToolLimits(pydantic.BaseModel):
    """Limits of each call of a tool."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    deadline_s: float | None = pydantic.Field(default=30.0, gt=0)
    """Most seconds of one call, ``None`` for no limit. Waiting for the pool, the rate or a thread does not count."""
    pool: str | None = None
    """Pool of the graph, declared with ``Graph(pools=...)``, of which a call holds one unit; ``None`` for none. Outside of a
    graph there are no pools, and a call starts at once."""
    rate: str | None = None
    """Rate of the graph, declared with ``Graph(rates=...)``, of which a call is one start; ``None`` for none. As above."""
    max_output_tokens: int | None = pydantic.Field(default=512, ge=32)
    """Longest answer, in tokens of the conversation's own format; ``None`` for no such bound. Outside of a graph nobody knows
    the format, and only the next bound holds."""
    max_output_chars: int = pydantic.Field(default=8000, ge=1)
    """Longest answer, in characters. Cut to it first, so that no more than this is ever turned into tokens."""

    @property
    def needs(self) -> dict[str, int]:
        """What a call asks the graph for, all at once."""
        return {name: 1 for name in (self.pool, self.rate) if name is not None}


async def limited(
    work: Callable[[], Awaitable[Any]],
    limits: ToolLimits,
    turn: contextlib.AbstractAsyncContextManager[Any] | None = None,
) -> ToolAnswer:
    """Do one call within its limits and answer, whatever becomes of it.

    Args:
        work: the call itself; gives a ``ToolAnswer``, or anything else, whose ``str`` is the answer.
        limits: see ``ToolLimits``.
        turn: held while the work runs, such as a limiter of threads; ``None`` for nothing.

    Raises:
        BrokenToolError: raised by the work.
        LookupError: the graph has no such pool or rate.
        asyncio.CancelledError: somebody asked for it.
    """
    permit = tool_context().permit(limits.needs) if limits.needs else contextlib.nullcontext()
    async with permit, turn or contextlib.nullcontext():
        answer = await _answered(work, limits.deadline_s)
    return ToolAnswer(cut_to_limits(blanked(answer.text), limits), answer.outcome)


async def _answered(work: Callable[[], Awaitable[Any]], deadline_s: float | None) -> ToolAnswer:
    try:
        with exits_as_errors(), anyio.move_on_after(deadline_s):
            given = await work()
            return given if isinstance(given, ToolAnswer) else ToolAnswer(str(given))
        return failure(f"no answer within {deadline_s:g} s")
    except asyncio.CancelledError:
        if cancel_requested():
            raise
        return failure("the call was cancelled")
    except BrokenToolError:
        raise
    # Whatever else a tool does wrong is something for the model to read.
    except Exception as error:
        return failure(str(error) or type(error).__name__)


def cut_to_limits(text: str, limits: ToolLimits) -> str:
    """The text, or as much of its beginning as the limits allow, and a mark that says how long it was."""
    text = bounded(text, limits.max_output_chars)
    most, count = limits.max_output_tokens, tool_context().count_tokens
    # No token is shorter than a byte, so text of few bytes need not be counted.
    if most is None or count is None or len(text.encode()) <= most or (size := count(text)) <= most:
        return text
    mark, kept = f" [cut: {size} tokens]", text
    while kept and size > most:
        kept = kept[: min(len(kept) - 1, len(kept) * most // size)]
        size = count(kept + mark)
    return kept + mark

"""Where a process of an environment gets the surroundings of its tools from: permits, size of text, audit log, trace.

The parent's side, for one call of the environment; the child's is ``remote_context.py``. Whatever a call that is over, cut
short or crashed still held is given back here, and the spans it left open end.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, NamedTuple

import anyio

from flow.elsewhere import Hearer
from stages.tools.context import tool_context

ASIDE = ("asks", "frees", "shows")
"""What a process says while it works on a call; anything else is its answer."""
Send = Callable[[tuple[Any, ...]], None]


class Terms(NamedTuple):
    """What the process of an environment is told with a call."""

    attempt: int = 0
    """Executions of the episode before."""
    key: str = ""
    """The name for effects."""
    counts: bool = False
    """Whether text can be counted in tokens."""
    heard: int | None = None
    """Number of the call, with which the process tells what it shows; ``None`` where nobody records."""


class ContextDesk:
    """Serves the tool context of the running task, and puts what the process shows into the trace of its attempt.

    Args:
        send: to the process; raises ``OSError`` where that has ended.
        call: number of the call in that process.

    Attributes:
        terms: what the process is told with the call.
    """

    def __init__(self, send: Send, call: int) -> None:
        self._send = send
        self._hearer = Hearer(call)
        self._context = tool_context()
        self._loop = asyncio.get_running_loop()
        self._variables = copy_context()
        self._holds: dict[int, asyncio.Task[None]] = {}
        self._closed = False
        counts = self._context.count_tokens is not None
        self.terms = Terms(self._context.attempt, self._context.key, counts, self._hearer.call)

    def hear(self, message: tuple[Any, ...]) -> None:
        """Take what the process says: ``("asks", number, what, payload)``, ``("frees", number)`` or ``("shows", what)``.

        In any thread.
        """
        if message[0] == "shows":
            self._loop.call_soon_threadsafe(self._hearer.hear, message[1])
        else:
            self._loop.call_soon_threadsafe(self._serve, *message, context=self._variables)

    async def close(self) -> None:
        """Give back all that is held; serve nothing any more."""
        self._closed = True
        self._hearer.end()
        holds = list(self._holds.values())
        for hold in holds:
            hold.cancel()
        await asyncio.gather(*holds, return_exceptions=True)

    def _serve(self, kind: str, number: int, what: str = "", payload: Any = None) -> None:
        if self._closed:
            return
        if kind == "frees":
            hold = self._holds.get(number)
            if hold is not None:  # else it was taken in an earlier call, whose end gave it back
                hold.cancel()
        elif what == "permit":
            self._holds[number] = self._loop.create_task(self._hold(number, payload))
        else:
            self._answer(number, what, payload)

    def _answer(self, number: int, what: str, payload: Any) -> None:
        count = self._context.count_tokens
        try:
            value = self._context.audit(payload) if what == "audit" or count is None else count(payload)
        # The call is the process's, and so is what comes of its error.
        except Exception as error:
            self._say(number, "raised", error)
        else:
            self._say(number, "gave", value)

    async def _hold(self, number: int, needs: Mapping[str, int]) -> None:
        try:
            async with self._context.permit(needs):
                self._say(number, "gave", None)
                await anyio.sleep_forever()
        except LookupError as error:
            self._say(number, "raised", error)

    def _say(self, number: int, outcome: str, value: Any) -> None:
        with contextlib.suppress(OSError):  # it has ended, which the call itself tells
            self._send(("answers", number, outcome, value))

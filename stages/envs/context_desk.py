"""Where a process of an environment gets the surroundings of its tools from: permits, the size of text, the audit log.

The parent's side, for one call of the environment; the child's is ``remote_context.py``. Whatever a call that is over, cut
short or crashed still held is given back here. Spans stay behind: what a process does in a step is one slice of the trace.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

import anyio

from stages.tools.context import tool_context

Send = Callable[[tuple[Any, ...]], None]


class ContextDesk:
    """Serves the tool context of the running task.

    Args:
        send: to the process; raises ``OSError`` where that has ended.

    Attributes:
        terms: what the process is told with the call: executions before, the name for effects, and whether text can be counted
            in tokens.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._context = tool_context()
        self._loop = asyncio.get_running_loop()
        self._variables = copy_context()
        self._holds: dict[int, asyncio.Task[None]] = {}
        self._closed = False
        self.terms = (self._context.attempt, self._context.key, self._context.count_tokens is not None)

    def hear(self, message: tuple[Any, ...]) -> None:
        """Take what the process says: ``("asks", number, what, payload)`` or ``("frees", number)``. In any thread."""
        self._loop.call_soon_threadsafe(self._serve, *message, context=self._variables)

    async def close(self) -> None:
        """Give back all that is held; serve nothing any more."""
        self._closed = True
        holds = list(self._holds.values())
        for hold in holds:
            hold.cancel()
        await asyncio.gather(*holds, return_exceptions=True)

    def _serve(self, kind: str, number: int, what: str = "", payload: Any = None) -> None:
        if self._closed:
            return
        if kind == "frees":
            self._holds[number].cancel()
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

"""Handles of a virtual loop: asyncio's own, made without the questions that only a loop in debug mode asks.

A simulated step costs about as much as its handle, so what asyncio does for each one counts: these take a third of the time.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any


class Callback(asyncio.Handle):
    """A call that is due."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None


class Timer(asyncio.TimerHandle):
    """A call that is due later."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: Any,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._when, self._loop, self._callback, self._args = when, loop, callback, args
        self._cancelled, self._repr, self._source_traceback, self._scheduled = False, None, None, True

    def cancel(self) -> None:
        """Cancel the call; the loop is told, since a timer far ahead would lie in its heap for long."""
        if not self._cancelled:
            self._cancelled = True
            if self._scheduled:
                self._loop.timer_cancelled()

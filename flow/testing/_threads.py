"""Threads as a virtual loop plays them: what they are given runs on the loop itself, a random virtual time later.

A real thread would make the order of events a matter of the machine. What is lost is parallelism within one instant of virtual
time; what is kept is all that a graph sees of a thread: work starts late, cannot be stopped in the middle, and others go on
meanwhile.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from .._executor import Call, Executor

P = ParamSpec("P")
T = TypeVar("T")

_START_S = 0.1
"""Most virtual seconds that work waits for its thread."""


class PlayedExecutor(Executor):
    """The threads of a node, played by a virtual loop."""

    def submit(self, function: Callable[[], Any]) -> Call:
        """Begin a call."""
        call = Call(function, self._loop.create_future(), asyncio.current_task())
        self.calls[call] = None
        threads: PlayedThreads = getattr(self._loop, "threads")  # noqa: B009 - a simulation runs on a virtual loop
        threads.submit(function).add_done_callback(lambda done: self._finished(call, *_outcome(done)))
        return call


def _outcome(done: "Future[Any]") -> tuple[Any, BaseException | None]:
    cause = done.exception()
    return (None if cause is not None else done.result()), cause


class PlayedThreads(ThreadPoolExecutor):
    """Stands where an executor is asked for; it never starts a thread.

    Args:
        loop: the virtual loop.
        draw: gives random numbers in [0, 1).

    Attributes:
        blocked_s: seconds that the work under way has blocked for; ``None`` while no work is.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, draw: Callable[[], float]) -> None:
        super().__init__(1)
        self._loop, self._draw = loop, draw
        self.blocked_s: float | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run a function later; the future is set on the loop."""
        future: Future[T] = Future()
        self._loop.call_later(self._draw() * _START_S, self._play, future, partial(fn, *args, **kwargs))
        return future

    def _play(self, future: "Future[Any]", work: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self.blocked_s = 0.0
        try:
            settle = partial(future.set_result, work())
        except Exception as error:
            settle = partial(future.set_exception, error)
        took, self.blocked_s = self.blocked_s, None
        self._loop.call_later(took, settle)

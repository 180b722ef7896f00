"""A thread that one environment has to itself: it is made there, and its plain methods run there, one after another.

Not a pool. Calls of one environment never meet, objects that may be used in one thread only are, and a call that hangs holds up
nobody else. A daemon, unlike the threads of ``concurrent.futures``, which the interpreter joins at its exit. Called by
``housed.py`` and ``custom.py``.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from stages.exits import exits_as_errors

P = ParamSpec("P")
T = TypeVar("T")


class HomeThread(Executor):
    """Starts with its first call and ends after ``shutdown``."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._ended: Future[None] | None = None

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function. Cancelled, the call goes on if it has begun, its result is dropped, and the next one waits."""
        # Through the loop, so that a virtual one can play the thread.
        known = contextvars.copy_context()  # what it is part of: the episode's credentials, the run, its tools
        return await asyncio.get_running_loop().run_in_executor(self, partial(known.run, function, *args, **kwargs))

    async def finish(self, function: Callable[[], T]) -> T:
        """Call a plain function in any case: cancelled, this waits no longer, and the call is made when its turn comes."""
        known = contextvars.copy_context()
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self, partial(known.run, function)))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """See ``concurrent.futures.Executor``."""
        future: Future[T] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        if self._ended is None:
            self._ended = Future()
            arguments = (self._calls, self._ended)
            self._thread = threading.Thread(target=_serve, args=arguments, name="headrace-environment", daemon=True)
            self._thread.start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """End after what was submitted. Does not wait: see ``ended``."""
        self._calls.put(None)

    def is_current(self) -> bool:
        """Whether this thread is the calling one."""
        return self._ended is not None and threading.current_thread() is self._thread

    async def ended(self) -> None:
        """Wait until the thread has ended, if it ever started."""
        if self._ended is not None:
            await asyncio.shield(asyncio.wrap_future(self._ended))
            # It has nothing left to do but to end.
            self._thread.join()


def _serve(calls: "queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]", ended: "Future[None]") -> None:
    while (call := calls.get()) is not None:
        future, function = call
        if future.set_running_or_notify_cancel():
            try:
                with exits_as_errors():
                    result = function()
            except StopIteration as error:
                # A future of asyncio refuses it and would stay pending for ever.
                future.set_exception(RuntimeError(f"StopIteration: {error}"))
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del call, future, function  # an idle thread holds nothing of its last call
    ended.set_result(None)

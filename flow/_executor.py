"""Threads of one node: they run its calls, and a call that hangs is given up rather than waited for.

Daemon threads, unlike those of ``concurrent.futures``, which the interpreter joins at its exit: one call that never returns
would keep the process alive. The counting happens on the loop alone; a thread runs calls and posts what came of them.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from ._stacks import Place, place_of_thread


class Call:
    """One call on its way.

    Attributes:
        future: its outcome, on the loop; cancelled where the call was given up.
        task: the task that waits for it.
        thread: number of the thread that runs it; ``None`` before it starts.
        abandoned: whether nobody waits for it any more.
    """

    __slots__ = ("abandoned", "function", "future", "task", "thread")

    def __init__(self, function: Callable[[], Any], future: "asyncio.Future[Any]", task: "asyncio.Task[Any] | None") -> None:
        self.function, self.future, self.task = function, future, task
        self.thread: int | None = None
        self.abandoned = False


class Executor:
    """Threads that are started as calls need them, one for each call under way.

    Args:
        name: start of the threads' names.
        is_late: whether the deadline of the calling task has passed.
        on_late: called on the loop when a call that was given up ends after all; its result is thrown away.
        on_abandoned: called when a call is given up, with the number of those that still run.

    Attributes:
        name: the start of their names.
        calls: calls under way, given up or not.
    """

    def __init__(
        self,
        name: str,
        is_late: Callable[["asyncio.Task[Any]"], bool],
        on_late: Callable[[], None],
        on_abandoned: Callable[[int], None],
    ) -> None:
        self.name, self._is_late, self._on_late, self._on_abandoned = name, is_late, on_late, on_abandoned
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads: dict[threading.Thread, asyncio.Future[None]] = {}
        self._started = self._idle = 0
        self.calls: dict[Call, None] = {}

    def submit(self, function: Callable[[], Any]) -> Call:
        """Begin a call on a thread that has none."""
        inherited = contextvars.copy_context()  # as with asyncio.to_thread
        call = Call(lambda: inherited.run(function), self._loop.create_future(), asyncio.current_task())
        self.calls[call] = None
        if self._idle:
            self._idle -= 1
        else:
            self._start()
        self._queue.put(call)
        return call

    def give_up_if_late(self, call: Call) -> bool:
        """Give a call up whose deadline has passed.

        Returns:
            Whether it is given up.
        """
        if call.task is None or not self._is_late(call.task):
            return False
        self.give_up(call)
        return True

    def give_up(self, call: Call) -> None:
        """Wait no longer for a call: its result is thrown away, and its worker gets another thread."""
        if not call.abandoned and call in self.calls:
            call.abandoned = True
            call.future.cancel()
            self._on_abandoned(sum(other.abandoned for other in self.calls))

    def close(self) -> "list[asyncio.Future[None]]":
        """Have every thread end after the call it is in.

        Returns:
            For each thread, what is done when it has ended.
        """
        for _ in self._threads:
            self._queue.put(None)
        return list(self._threads.values())

    def join(self) -> None:
        """Wait for the threads that have come to their end, which takes them no time."""
        for thread, ended in list(self._threads.items()):
            if ended.done():
                thread.join()
                del self._threads[thread]

    def places(self) -> list[Place]:
        """Where the calls under way are."""
        return [place_of_thread(call.thread) for call in self.calls if call.thread is not None]

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"headrace-{self.name}_{self._started}", daemon=True)
        self._started += 1
        self._threads[thread] = self._loop.create_future()
        thread.start()

    def _serve(self) -> None:
        while (call := self._queue.get()) is not None:
            call.thread = threading.get_ident()
            result: Any = None
            cause: BaseException | None = None
            try:
                result = call.function()
            except BaseException as error:
                cause = error
            self._post(self._finished, call, result, cause)
            del call, result, cause  # an idle thread holds nothing of its last item
        self._post(self._gone, threading.current_thread())

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            # The loop is closed: a call that was given up outlived the whole program around it. Nobody is there to be told.
            return

    def _finished(self, call: Call, result: Any, cause: BaseException | None) -> None:
        del self.calls[call]
        self._idle += 1
        if call.abandoned:
            self._on_late()
        elif call.future.cancelled():
            return
        elif cause is None:
            call.future.set_result(result)
        elif isinstance(cause, StopIteration):
            # A future refuses it and would stay pending for ever; a coroutine turns it into RuntimeError, and so do we.
            error = RuntimeError("a stage raised StopIteration")
            error.__cause__ = cause
            call.future.set_exception(error)
        else:
            call.future.set_exception(cause)

    def _gone(self, thread: threading.Thread) -> None:
        if thread in self._threads:
            self._threads[thread].set_result(None)

"""Waiting, for workers: a parker sleeps until somebody calls it. Conditions are checked again after every wake-up."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any


class Parker:
    """A worker's bed. Calling it wakes the worker, or keeps it from falling asleep the next time.

    Attributes:
        owner: the lane of who sleeps here, for the stall report; ``None`` where nobody asks.
    """

    __slots__ = ("_future", "_woken", "owner")

    def __init__(self, owner: object = None) -> None:
        self._future: asyncio.Future[None] | None = None
        self._woken = False
        self.owner = owner

    def __call__(self) -> None:
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Sleep until woken. A wake-up that comes before the sleep counts."""
        if not self._woken:
            self._future = future = asyncio.get_running_loop().create_future()
            try:
                await future
            finally:
                self._future = None
        self._woken = False


class Pump:
    """Work without a wait in it, done soon after it is called for: once for all calls in one pass of the loop.

    A third of the cost of waking a task, for workers that run no user code or only such as does not wait.

    Args:
        step: does what can be done now. Gives ``None`` to be called again, anything else to be left alone.
        parker: of the task that waits for the result; woken otherwise, it has the step done once more.
    """

    __slots__ = ("_active", "_context", "_due", "_error", "_loop", "_parker", "_result", "_step")

    def __init__(self, step: Callable[[], bool | None], parker: Parker) -> None:
        self._step, self._parker = step, parker
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # the step must not see the variables of whoever calls for it
        self._active = self._due = False
        self._error: BaseException | None = None
        self._result: bool | None = None

    def __call__(self) -> None:
        if self._active and not self._due:
            self._due = True
            self._loop.call_soon(self._look, context=self._context)

    async def run(self) -> bool:
        """Do the step whenever called, until it gives a result.

        Raises:
            BaseException: what the step raised.
        """
        self._active, self._result = True, None
        try:
            while self._result is None:
                self._look()
                if self._active:
                    await self._parker.wait()
        finally:
            self._active = False
            if self._error is not None:  # also where the task is cancelled meanwhile: the step need not fail a second time
                error, self._error = self._error, None
                raise error
        return self._result

    def _look(self) -> None:
        self._due = False
        if not self._active:
            return
        try:
            self._result = self._step()
        except BaseException as error:
            self._error, self._result = error, False
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        if self._result is not None:
            self._active = False
            self._parker()


async def outlast(
    futures: "Sequence[asyncio.Future[Any]]", until: "asyncio.Future[None] | None" = None
) -> asyncio.CancelledError | None:
    """Wait until all are done, whatever cancels the waiting meanwhile: for what must not be left half done.

    Args:
        futures: what to wait for.
        until: ends the waiting when it is done, for what may never end.

    Returns:
        The last cancellation that came, which the caller lets go on once nothing is half done; ``None`` if none came.
    """
    pending = [future for future in futures if not future.done()]
    cancelled: asyncio.CancelledError | None = None
    if not pending or (until is not None and until.done()):
        return None
    # One future for all of them: asyncio.wait would look at each of them again after every cancel.
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(pending)

    def ended(_: "asyncio.Future[Any]") -> None:
        nonlocal left
        left -= 1
        if left == 0:
            enough(_)

    def enough(_: "asyncio.Future[Any]") -> None:
        if not over.done():
            over.set_result(None)

    for future in pending:
        future.add_done_callback(ended)
    if until is not None:
        until.add_done_callback(enough)
    while not over.done():
        try:
            await asyncio.wait([over])
        except asyncio.CancelledError as error:
            cancelled = error
    for future in pending:
        future.remove_done_callback(ended)
    if until is not None:
        until.remove_done_callback(enough)
    return cancelled

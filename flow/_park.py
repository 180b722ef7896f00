"""Waiting, for workers: a parker sleeps until somebody calls it. Conditions are checked again after every wake-up."""

import asyncio
from collections.abc import Sequence
from typing import Any


class Parker:
    """A worker's bed. Calling it wakes the worker, or keeps it from falling asleep the next time."""

    __slots__ = ("_future", "_woken")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._woken = False

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


async def outlast(futures: "Sequence[asyncio.Future[Any]]") -> asyncio.CancelledError | None:
    """Wait until all are done, whatever cancels the waiting meanwhile: for what must not be left half done.

    Returns:
        The last cancellation that came, which the caller lets go on once nothing is half done; ``None`` if none came.
    """
    cancelled: asyncio.CancelledError | None = None
    while pending := [future for future in futures if not future.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class Deadlines:
    """Deadlines of the attempts of one node: all have one length, so they expire in the order they were set.

    One timer serves them all; setting and clearing one costs a dictionary operation.
    """

    def __init__(self, deadline_s: float | None) -> None:
        self.deadline_s = deadline_s
        self._armed: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._armed)

    def set(self, task: "asyncio.Task[object]") -> float | None:
        """Cancel this task when the deadline passes.

        Returns:
            Loop time of the deadline, ``None`` without one.
        """
        if self.deadline_s is None:
            return None
        loop = asyncio.get_running_loop()
        when = loop.time() + self.deadline_s
        self._armed[task] = when
        if self._timer is None:
            self._timer = loop.call_at(when, self._expire)
        return when

    def clear(self, task: "asyncio.Task[object]") -> bool:
        """The attempt is over.

        Returns:
            Whether it was cancelled for its deadline.
        """
        self._armed.pop(task, None)
        if task in self._expired:
            self._expired.discard(task)
            return True
        return False

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._armed:
            task, when = next(iter(self._armed.items()))
            if when > loop.time():
                self._timer = loop.call_at(when, self._expire)
                return
            del self._armed[task]
            self._expired.add(task)
            task.cancel()

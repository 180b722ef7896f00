"""Where the blocking calls of one foreign environment run: in threads, one at a time, in the order they were asked for.

Not a thread of its own: an environment that waits for its model holds none. A caller that is cancelled does not wait for the
call it gave up, which no one can stop; the next call does, so two calls never meet in an environment that knows no threads.
Threads are not counted against anyio's limit: calls that hang hold up their own environment only.
"""

import math
import threading
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")


class Lane:
    """Calls of one environment."""

    def __init__(self) -> None:
        self._free = threading.Lock()
        self._limit = CapacityLimiter(math.inf)
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """Call ``work`` off the loop, after whatever runs here now.

        Raises:
            RuntimeError: the lane was closed meanwhile, and ``work`` was not called.
        """
        return await to_thread.run_sync(self._alone, work, abandon_on_cancel=True, limiter=self._limit)

    async def close(self, work: Callable[[], object]) -> None:
        """Call ``work`` as the last one. Cancelled, it still runs once the call before it is over."""
        await to_thread.run_sync(self._last, work, abandon_on_cancel=True, limiter=self._limit)

    def _alone(self, work: Callable[[], T]) -> T:
        with self._free:
            if self._closed:
                raise RuntimeError("expected an open environment; got one that was closed, in Lane.run; make another")
            return work()

    def _last(self, work: Callable[[], object]) -> None:
        with self._free:
            if not self._closed:
                self._closed = True
                work()

"""How late the event loop runs its timers: the time everybody else waits while one callback computes."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable

_EVERY_S = 0.01
_BOUNDS_MS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class LoopLag:
    """Measures the loop while ``measure`` runs.

    Attributes:
        max_ms: longest delay of a timer, in milliseconds.
    """

    def __init__(self) -> None:
        self.max_ms = self._since_ms = 0.0
        self._counts = [0] * (len(_BOUNDS_MS) + 1)

    async def measure(self, *on_late: Callable[[float], None]) -> None:
        """Measure until cancelled. ``on_late`` hear of each delay, in seconds."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            late_s = loop.time() - due
            late_ms = late_s * 1e3
            for hear in on_late:
                hear(late_s)
            self.max_ms, self._since_ms = max(self.max_ms, late_ms), max(self._since_ms, late_ms)
            self._counts[bisect_left(_BOUNDS_MS, late_ms)] += 1

    def max_ms_since(self) -> float:
        """Longest delay since this was asked the last time, for the one who tells it regularly."""
        longest, self._since_ms = self._since_ms, 0.0
        return longest

    def quantile_ms(self, share: float) -> float | None:
        """Upper bound of the delay of this share of timers, ``None`` before the first."""
        total, seen = sum(self._counts), 0
        for count, bound in zip(self._counts, (*_BOUNDS_MS, self.max_ms), strict=True):
            seen += count
            if total and seen >= share * total:
                return min(bound, self.max_ms)
        return None

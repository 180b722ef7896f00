"""Processors, or a device, that several kinds of work share, in virtual time.

Each piece of work says how long it takes alone and how many units it keeps busy then. While all that is under way asks for more
units than there are, each gets the same part of what it asks for, so it takes so many times longer. That is how an operating
system shares processors among threads that want them, and nothing is fitted: what a piece of work asks for is measured alone.
What threads lose beside that, in caches and memory bandwidth, is not in it.
"""

import asyncio
from dataclasses import dataclass


@dataclass(eq=False)
class _Piece:
    """Work under way: seconds that it would still take alone."""

    left_s: float
    demand: float
    over: asyncio.Future[None]


class Shares:
    """Of one kind of unit.

    Args:
        capacity: units there are, as processors.
    """

    def __init__(self, capacity: float) -> None:
        self._capacity, self._pieces = capacity, list[_Piece]()
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def work(self, seconds: float, demand: float) -> None:
        """Return once work is done.

        Args:
            seconds: it takes alone.
            demand: units that it keeps busy alone.
        """
        if seconds <= 0.0:
            return
        piece = _Piece(seconds, demand, asyncio.get_running_loop().create_future())
        self._advance()
        self._pieces.append(piece)
        self._arm()
        try:
            await piece.over
        finally:
            if piece in self._pieces:  # cancelled
                self._advance()
                self._pieces.remove(piece)
                self._arm()

    def _rate(self) -> float:
        """Of what each piece would do alone, how much it does now."""
        wanted = sum(piece.demand for piece in self._pieces)
        return 1.0 if wanted <= self._capacity else self._capacity / wanted

    def _advance(self) -> None:
        """Count what was done since the last time, in which nobody came or went."""
        now, rate = asyncio.get_running_loop().time(), self._rate()
        for piece in self._pieces:
            piece.left_s -= (now - self._since_s) * rate
        self._since_s = now

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left_s = min((piece.left_s for piece in self._pieces), default=None)
        loop = asyncio.get_running_loop()
        self._timer = None if left_s is None else loop.call_later(max(0.0, left_s) / self._rate(), self._end)

    def _end(self) -> None:
        self._advance()
        for piece in [piece for piece in self._pieces if piece.left_s <= 1e-9]:
            self._pieces.remove(piece)
            piece.over.set_result(None)
        self._arm()


class Thread:
    """A thread that does one thing after the other, on processors that it shares.

    Args:
        processors: those.
    """

    def __init__(self, processors: Shares) -> None:
        self._processors, self._turn = processors, asyncio.Lock()

    async def work(self, seconds: float) -> None:
        """Return once work is done that keeps it busy for so long, after all that came before."""
        async with self._turn:
            await self._processors.work(seconds, 1.0)

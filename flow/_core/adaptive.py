"""How many units an adaptive pool should have, from how long they are held.

A server answers in about the same time until it is full; from there on every further request only waits inside it, and holds
its unit longer. So the pool grows by one after a round in which all units were in demand and none was held much longer than
when the server was at ease, and shrinks by a tenth when they were. What "at ease" is changes with the work, so every so often
two rounds are run at half the size: the first empties the server, the second measures it.

Source: the gradient limit of https://github.com/Netflix/concurrency-limits; here without its smoothing by round trips, since
units are few and held for seconds.
"""

TOLERANCE = 2.0
"""Mean hold time of a round, as a multiple of that at ease, above which a pool shrinks."""
_PROBE_ROUNDS = 50
"""Rounds from one measurement at half the size to the next."""


class Adaptive:
    """The size of one pool.

    Args:
        least: fewest units; the pool starts with these.
        most: most units.
    """

    __slots__ = ("_at_ease_s", "_before", "_count", "_emptied", "_rounds", "_sum_s", "_wanted", "least", "most")

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self._at_ease_s: float | None = None
        self._before: int | None = None  # size before the two rounds that measure, while they are under way
        self._emptied = False
        self._count = self._rounds = 0
        self._sum_s = 0.0
        self._wanted = False

    def released(self, held_s: float, size: int, *, wanted: bool) -> int:
        """A unit came back.

        Args:
            held_s: seconds it was held.
            size: units of the pool now.
            wanted: whether somebody waits for a unit.

        Returns:
            Units the pool should have.
        """
        self._count += 1
        self._sum_s += held_s
        self._wanted = self._wanted or wanted
        if self._count < size:
            return size
        mean_s, wanted = self._sum_s / self._count, self._wanted
        self._count, self._sum_s, self._wanted = 0, 0.0, False
        self._rounds += 1
        if self._before is not None:
            self._emptied = not self._emptied
            if self._emptied:
                return size
            size, self._before, self._at_ease_s = self._before, None, mean_s
            return size
        if self._at_ease_s is None or mean_s < self._at_ease_s:
            self._at_ease_s = mean_s
        if self._rounds % _PROBE_ROUNDS == 0 and size > self.least:
            self._before = size
            return max(self.least, size // 2)
        if mean_s > TOLERANCE * self._at_ease_s:
            return max(self.least, min(size - 1, size * 9 // 10))
        return min(self.most, size + 1) if wanted else size

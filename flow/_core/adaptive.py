"""How many units an adaptive pool should have, from how long they are held.

A server answers in about the same time until it is full; from there on every further request only waits inside it, and holds
its unit longer. So the pool grows by one after a round in which all units were in demand and none was held much longer than the
shortest seen, and shrinks by a tenth when they were.

The shortest is a mean too, of a round of answers, so that one lucky answer is no measure. It is not raised as time passes: a
full server would then be taken for a slow one, and the pool grow without end. It is measured anew where the pool is at its
least and answers still take long, since then it is the server that has changed.

Source: the gradient limit of https://github.com/Netflix/concurrency-limits; here without its smoothing by round trips, since
units are few and held for seconds.
"""

TOLERANCE = 2.5
"""Mean hold time of a round, as a multiple of the shortest, above which a pool shrinks."""
_ROUND = 32
"""Fewest answers in a round, so that its mean says something where answers differ much."""


class Adaptive:
    """The size of one pool.

    Args:
        least: fewest units; the pool starts with these.
        most: most units.
    """

    __slots__ = ("_count", "_shortest_s", "_sum_s", "_wanted", "least", "most")

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self._shortest_s: float | None = None
        self._count = 0
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
        if self._count < max(size, _ROUND):
            return size
        mean_s, wanted = self._sum_s / self._count, self._wanted
        shortest_s = mean_s if self._shortest_s is None else min(self._shortest_s, mean_s)
        slow = mean_s > TOLERANCE * shortest_s
        self._count, self._sum_s, self._wanted = 0, 0.0, False
        self._shortest_s = mean_s if slow and size == self.least else shortest_s
        if slow:
            return max(self.least, min(size - 1, size * 9 // 10))
        return min(self.most, size + 1) if wanted else size

"""Permits of pools that were taken inside the work: from the moments and slices of a trace to the pieces of a worker.

What a worker's own task waited for or held is on its row. A task that it started itself has a track beside it: what it held
counts all the same, and it held the work up by its wait only while nothing else was open beside the row.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ..trace import Instant, Spans
from ._pieces import Hold, Piece, Wait

HELD = "permit held"
"""Name of the moment at which one is given back."""


def hold_of(instant: Instant) -> Hold | None:
    """What a moment tells of; ``None`` where it is somebody's own of that name."""
    pool, units, seconds = (instant.args.get(key) for key in ("pool", "units", "seconds"))
    if instant.name != HELD or not isinstance(pool, str) or not isinstance(units, int) or not isinstance(seconds, float):
        return None
    return Hold(pool, units, instant.at_ns - int(seconds * 1e9), instant.at_ns)


def alone(waits: Sequence[Wait], beside: Iterable[tuple[int, int]]) -> list[Wait]:
    """The parts of waits beside a row in which nothing else was open there.

    Args:
        waits: those beside the row.
        beside: from when to when something was open beside the row, the waits included.
    """
    events = sorted(event for start, end in beside for event in ((start, 1), (end, -1)))
    starts: list[int] = []
    ends: list[int] = []
    count = 0
    for at, change in events:
        if count == 1:
            ends.append(at)
        count += change
        if count == 1:
            starts.append(at)
    found: list[Wait] = []
    for wait in waits:
        for place in range(max(0, bisect_right(starts, wait.start) - 1), len(starts)):
            if starts[place] >= wait.end:
                break
            start, end = max(starts[place], wait.start), min(ends[place], wait.end)
            if start < end:
                found.append(Wait(wait.kind, wait.what, start, end))
    return found


def outermost(spans: Spans, ends: Sequence[int]) -> Iterable[tuple[int, int]]:
    """From when to when something was open on a track."""
    return ((spans.starts_ns[index], end) for index, end in enumerate(ends) if not spans.depths[index])


def settle(pieces: Sequence[Piece], holds: Sequence[Hold], waits: Sequence[Wait]) -> None:
    """Give the pieces of one worker, which are in order, what was held and waited for inside them."""
    starts = [piece.start for piece in pieces]
    for hold in sorted(holds, key=lambda hold: hold.start):
        piece = _at(pieces, starts, hold.start)
        if piece is not None:
            piece.holds = (*piece.holds, hold._replace(end=min(hold.end, piece.end)))
    for wait in waits:
        piece = _at(pieces, starts, wait.start)
        if piece is not None:
            among = (*piece.pools, wait._replace(end=min(wait.end, piece.end)))
            piece.pools = tuple(sorted(among, key=lambda wait: wait.start))


def _at(pieces: Sequence[Piece], starts: Sequence[int], at: int) -> Piece | None:
    place = bisect_right(starts, at) - 1
    return pieces[place] if place >= 0 and at < pieces[place].end else None

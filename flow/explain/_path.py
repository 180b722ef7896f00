"""The critical path: from the end of a step back through whatever it waited for, until the beginning.

At any moment the walk is at one piece of work, or between two. Work on the path is what, had it been quicker, would have let
the step end sooner. From the beginning of a piece it goes on to what let it begin: the piece that made what it took, where the
worker waited for that; the worker's own piece before, where it was busy; what gave a ticket back; or the piece that made room.
So all of the time between two moments is told apart, once each.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ._links import Links
from ._pieces import SLACK_NS, TURN, Execution, Piece


class Stretch(NamedTuple):
    """A part of the way.

    Attributes:
        kind: ``work``, ``commit`` at the end of a step, ``compile``, ``load``, ``sync wait``, ``pool``, ``room``;
            ``hand-over``, the time between two pieces that nothing explains, as that of a busy event loop; ``start``, before
            anything.
        name: of the node, pool or cell.
        ns: its length.
        piece: the piece it lies in or before; ``None`` before anything.
    """

    kind: str
    name: str
    ns: int
    piece: Piece | None


class Paths:
    """Walks through one execution."""

    def __init__(self, execution: Execution, links: Links) -> None:
        self._execution, self._links = execution, links
        self._syncs: dict[str, list[tuple[int, int]]] = {}
        for span in execution.syncs:
            self._syncs.setdefault(span.where, []).append((span.start, span.end))
        self._compiled: dict[str, list[tuple[int, int]]] = {}
        for span in execution.compiled:
            spans = self._compiled.setdefault(span.where, [])
            if not spans or span.start >= spans[-1][1]:  # one inside another counts once
                spans.append((span.start, span.end))

    def walk(self, piece: Piece | None, at: int, until: int) -> list[Stretch]:
        """Tell what the time before a moment went to, the last first.

        Args:
            piece: where the walk begins: at this one.
            at: the moment, ns.
            until: how far back, ns.
        """
        return _Walk(self, until).go(piece, at)

    def gone_before(self, piece: Piece, at: int) -> Piece | None:
        """Whose turn it was when one that keeps order had to wait; ``None`` where it cannot be told."""
        return self._links.gone_before(piece, at)

    def taker(self, piece: Piece, at: int) -> Piece | None:
        """Who took something when a piece found room; ``None`` where it cannot be told."""
        taker = self._links.started(piece.room_of.partition("->")[2], piece.end, at)
        return None if taker is piece else taker

    def enabled(self, piece: Piece) -> tuple[Piece | None, int, tuple[str, str]]:
        """What let a piece begin, when that was there, and what the time from then on is to be put down to."""
        if piece.is_load:
            return self._load_enabled(piece)
        made = max(piece.sources, key=lambda source: seen_at(source, piece), default=None)
        ready = 0 if made is None else seen_at(made, piece)
        free = 0 if piece.before is None else piece.before.room
        if piece.start > max(ready, free) + SLACK_NS and (other := self._unseen(piece, max(ready, free))) is not None:
            made, ready = other, seen_at(other, piece)
        if any(wait.kind == "ticket" for wait in piece.waits):
            back = self._links.returned(piece.start)
            if back is not None and back.room >= max(ready, free):
                return back, back.room, ("hand-over", piece.node)
        pool = next((wait for wait in reversed(piece.waits) if wait.kind == "pool"), None)
        between = ("hand-over", piece.node) if pool is None else ("pool", pool.what)
        return made if ready >= free else piece.before, max(ready, free), between

    def _unseen(self, piece: Piece, after: int) -> Piece | None:
        """Who ended a wait for input without an arrow to tell, as what is called otherwise behind a broadcast.

        Whoever on the other side of the edge handed something over last, after a time.
        """
        wait = piece.waits[-1] if piece.waits else None
        node = "" if wait is None or wait.kind != "input" else wait.what.partition("->")[0]
        if any(source.node == node for source in piece.sources):
            return None
        return self._links.handed_over(node, after, piece.start)

    def others(self, piece: Piece, start: int, at: int) -> Iterable[tuple[str, str, int]]:
        """What was not work in a part of a piece."""
        if piece.is_load:
            yield "sync wait", piece.node, overlap(self._syncs.get(piece.node, ()), start, at)
            return
        if not (piece.pools or piece.compiled or self._compiled):
            return
        for wait in piece.pools:
            yield "pool", wait.what, overlap([(wait.start, wait.end)], start, at)
        # On the track of a role: that of the node's own name, or one that is no node's and works for all but the sink.
        compiled = max(
            (overlap(spans, start, at) for role, spans in self._compiled.items() if self._serves(role, piece)), default=0
        )
        yield "compile", piece.node, max(overlap(piece.compiled, start, at), compiled)

    def _serves(self, role: str, piece: Piece) -> bool:
        return role == piece.node or (role not in self._execution.by_node and piece.node != self._links.sink)

    def _load_enabled(self, load: Piece) -> tuple[Piece | None, int, tuple[str, str]]:
        before, published = self._links.load_before(load), self._links.published(load)
        published_at = 0 if published is None else min(published.end, load.start)
        free = 0 if before is None else before.end
        return before if free > published_at else published, max(free, published_at), ("hand-over", load.node)


class _Walk:
    """One walk."""

    def __init__(self, paths: Paths, until: int) -> None:
        self._paths, self._until = paths, until
        self._here: set[Piece] = set()  # passed at this moment: what takes no time at all may lead in a circle
        self.way: list[Stretch] = []

    def go(self, piece: Piece | None, at: int) -> list[Stretch]:
        """Go to the beginning."""
        while piece is not None and at > self._until:
            piece, at = self.back(piece, at)
        self.pass_by("start", "", at, self._until, None)
        return self.way

    def back(self, piece: Piece, at: int) -> tuple[Piece | None, int]:
        """Go from a moment of a piece, or of the wait for room behind it, to the one before."""
        again = piece in self._here
        self._here.add(piece)
        if at > piece.end and piece.room_of == TURN and not again:
            other = self._paths.gone_before(piece, at)
            if other is not None:
                return other, at
        if at > piece.end:
            taker = None if again else self._paths.taker(piece, at)
            if taker is not None:
                return self.enter(taker, self.pass_by("hand-over", taker.node, at, taker.start, taker))
            return piece, self.pass_by("room", piece.node, at, piece.end, piece)
        if again:
            return None, at
        self._work(piece, at)
        return self.enter(piece, min(at, piece.start))

    def pass_by(self, kind: str, name: str, at: int, start: int, piece: Piece | None) -> int:
        """Put down what the time from a start to now went to; gives the time at which the way goes on."""
        start = max(start, self._until)
        if start < at:
            self.way.append(Stretch(kind, name, at - start, piece))
            self._here.clear()
        return min(at, start)

    def enter(self, piece: Piece, at: int) -> tuple[Piece | None, int]:
        """Go to what let a piece begin."""
        if at <= self._until:
            return None, at
        cause, ready, (kind, name) = self._paths.enabled(piece)
        if cause is None:
            return None, at
        return cause, self.pass_by(kind, name, at, ready, piece)

    def _work(self, piece: Piece, at: int) -> None:
        """The part of a piece up to a moment, less what was something else in it."""
        start = max(piece.start, self._until)
        left = at - start
        if left <= 0:
            return
        for kind, name, ns in self._paths.others(piece, start, at):
            ns = min(ns, left)
            left -= ns
            if ns > 0:
                self.way.append(Stretch(kind, name, ns, piece))
        kind = "load" if piece.is_load else "commit" if piece.call == "commit" else "work"
        self.way.append(Stretch(kind, piece.node, left, piece))
        self._here.clear()


def seen_at(source: Piece, piece: Piece) -> int:
    """When a piece could take what another made. A wait for room may come before the hand-over, or before the next piece."""
    return min(piece.start, source.room if source.room <= piece.start else source.end)


def overlap(intervals: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """How much of the time from ``start`` to ``end`` lies in intervals, which are in order and do not overlap each other."""
    found = 0
    for place in range(max(0, bisect_right(intervals, (start, start)) - 1), len(intervals)):
        begin, stop = intervals[place]
        if begin >= end:
            break
        found += max(0, min(end, stop) - max(start, begin))
    return found

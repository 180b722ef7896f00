"""Who waited for whom: the pieces of an execution tied to those that made what they took, and what ended other waits."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ._pieces import SLACK_NS, Execution, Piece


class Links:
    """What came of what in one execution.

    Args:
        execution: gets the sources of its pieces.
        versions: arrows that are not of items.

    Attributes:
        sink: name of the node at the end whose steps the graph is there for; ``None`` where nothing was worked on.
        steps: its pieces that end a step; of a sink that takes one thing at a time, all of them.
    """

    def __init__(self, execution: Execution, versions: set[int]) -> None:
        self._execution = execution
        _tie(execution.pieces, versions)
        self._left: dict[str, tuple[list[int], list[Piece]]] = {}
        self._starts = {node: [piece.start for piece in pieces] for node, pieces in execution.by_node.items()}
        self.sink = self._find_sink()
        self.steps = [] if self.sink is None else self.steps_of(self.sink)
        self._loads: dict[str, tuple[list[int], list[Piece]]] = {}
        for load in execution.loads:
            starts, loads = self._loads.setdefault(load.node, ([], []))
            starts.append(load.start)
            loads.append(load)
        self._returns = self._find_returns()
        self._returned_at = [end for end, _ in self._returns]
        self._step_starts = [piece.start for piece in self.steps]

    def steps_of(self, node: str) -> list[Piece]:
        """Pieces of a node that end a step."""
        pieces = self._execution.by_node.get(node, [])
        finished = [piece for piece in pieces if piece.call == "finish"]
        return finished or pieces

    def started(self, node: str, after: int, at: int) -> Piece | None:
        """The piece of a node that began at a time: the first of those that did so together, as those behind it follow from it.

        Args:
            node: its name.
            after: it began later than this.
            at: the time; where nothing began then, the last before it counts, or the next just behind it, as clocks are read.
        """
        starts, pieces = self._starts.get(node, []), self._execution.by_node.get(node, [])
        first, behind = bisect_right(starts, max(after, at - SLACK_NS)), bisect_right(starts, at)
        if first < behind:
            return pieces[first]
        if behind and starts[behind - 1] > after:
            return pieces[behind - 1]
        return pieces[behind] if behind < len(starts) and starts[behind] <= at + SLACK_NS else None

    def gone_before(self, piece: Piece, at: int) -> Piece | None:
        """Of a node that keeps order, the piece that one had to wait for until a time: it left then and worked the longest."""
        rooms, pieces = self._by_room(piece.node)
        place = bisect_left(rooms, max(piece.end, at - SLACK_NS))
        left = [each for each in pieces[place : bisect_right(rooms, at + SLACK_NS)] if each is not piece]
        return max(left, key=lambda each: each.end, default=None)

    def handed_over(self, node: str, after: int, at: int) -> Piece | None:
        """The piece of a node that was handed on last, after a time and until another."""
        if node not in self._execution.by_node:
            return None
        rooms, pieces = self._by_room(node)
        place = bisect_right(rooms, at)
        return pieces[place - 1] if place and rooms[place - 1] > after else None

    def _by_room(self, node: str) -> tuple[list[int], list[Piece]]:
        found = self._left.get(node)
        if found is None:
            pieces = sorted(self._execution.by_node[node], key=lambda each: each.room)
            found = self._left[node] = [each.room for each in pieces], pieces
        return found

    def returned(self, at: int) -> Piece | None:
        """What gave a ticket back last, at a time or before: a load, or a piece behind which nothing came."""
        place = bisect_right(self._returned_at, at)
        return self._returns[place - 1][1] if place else None

    def published(self, load: Piece) -> Piece | None:
        """The piece of the sink that a load had to wait for."""
        place = bisect_right(self._step_starts, load.start)
        return self.steps[place - 1] if place else None

    def load_before(self, load: Piece) -> Piece | None:
        """The load of the same cell before one."""
        starts, loads = self._loads[load.node]
        place = bisect_left(starts, load.start)
        return loads[place - 1] if place else None

    def _find_sink(self) -> str | None:
        """Among those that collect steps the one with the most; else the last node that did anything."""
        by_node = self._execution.by_node
        collecting = {node: sum(p.call == "finish" for p in pieces) for node, pieces in by_node.items()}
        if any(collecting.values()):
            return max(collecting, key=lambda node: collecting[node])
        return next((node for node in reversed(self._execution.nodes) if node in by_node), None)

    def _find_returns(self) -> list[tuple[int, Piece]]:
        loads = [(load.end, load) for load in self._execution.loads]
        dropped = [(p.room, p) for p in self._execution.pieces if not p.taken and p.node != self.sink and p.birth is not None]
        return sorted([*loads, *dropped], key=lambda pair: pair[0])


def _tie(pieces: Sequence[Piece], versions: set[int]) -> None:
    """Give each piece those that made what it took: the last with the same arrow."""
    last: dict[int, Piece] = {}
    for piece in pieces:
        for flow in piece.flows:
            if flow in versions:
                continue
            made = last.get(flow)
            last[flow] = piece
            if made is not None and made is not piece:
                # Where an item goes two ways at once, the other way made nothing for this one; both have it from the same.
                for source in [made] if made.end <= piece.start + SLACK_NS else made.sources:
                    source.taken = True
                    piece.sources.append(source)

"""A trace as pieces of work with the waits before them, by execution of a graph. The only file that knows names of tracks.

An execution is the time in which workers of a graph were open: phases of a program may run graphs of one name, and a run that
was started again has them once more. Everything later works on these records and never on the trace.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..trace import Argument, Instant, Slice, Trace, Track

WAITS = {"wait for input": "input", "wait for ticket": "ticket", "wait for pool": "pool", "wait for room": "room"}
COMPILE = "compile"
SLACK_NS = 1_000_000
"""What comes of a piece may be taken just before its slice ends: both are noted one after the other."""
_GAP_NS = 100_000
"""Time without any open worker that parts two executions; at work a graph always has one."""
_OF_VERSIONS = ("published", "in force")
_GRAPH, _LOAD, _SYNC, _GROUPS, _EVENTS = "graph ", " (load)", " (sync wait)", " groups", " events"


class Wait(NamedTuple):
    """A worker waited: for what (``input``, ``ticket``, ``pool``, ``room``), for which, from when to when (ns)."""

    kind: str
    what: str
    start: int
    end: int


class Span(NamedTuple):
    """Something inside a piece of work, or on the track of a role: whose, its name, details, from when to when (ns)."""

    where: str
    name: str
    args: dict[str, Argument]
    start: int
    end: int


@dataclass(eq=False, slots=True)
class Piece:
    """One worker at work on one thing without a break, or one load of a cell.

    Attributes:
        node: whose work; for a load, the cell.
        lane: number of the worker in its execution.
        start: ns.
        end: ns.
        flows: arrows through it.
        args: details.
        waits: of the same worker, since its piece before.
        before: that piece; ``None`` for the first.
        sources: pieces that made what this one took.
        taken: whether a later piece took what it made.
        room: end of the wait for room behind it, at which others see what it made.
        room_of: edge on which it waited for that; empty where it did not.
        pools: waits for permits inside, by pool: from when to when.
        compiled: from when to when something was compiled inside.
        is_load: whether it is a load.
    """

    node: str
    lane: int
    start: int
    end: int
    flows: tuple[int, ...]
    args: dict[str, Argument]
    waits: list[Wait]
    before: "Piece | None"
    sources: list["Piece"] = field(default_factory=list["Piece"])
    taken: bool = False
    room: int = 0
    room_of: str = ""
    pools: list[Wait] = field(default_factory=list[Wait])
    compiled: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_load: bool = False

    @property
    def call(self) -> str:
        """``add`` or ``finish`` of a collecting sink; else empty."""
        return str(self.args.get("call", ""))

    @property
    def birth(self) -> int | None:
        """Birth number of what was worked on; ``None`` where it has none."""
        birth = self.args.get("birth")
        return birth if isinstance(birth, int) else None

    def blocked(self) -> Iterable[Wait]:
        """Waits for pools right before it and inside it."""
        return [*(wait for wait in self.waits if wait.kind == "pool"), *self.pools]


@dataclass(eq=False)
class Execution:
    """One execution of a graph.

    Attributes:
        graph: its name.
        start: ns.
        end: ns.
        nodes: names, from the sources on.
        lanes: node of each lane.
        pieces: all, in the order in which they began.
        tails: last waits of each lane, behind its last piece.
        loads: of cells, in order.
        syncs: waits inside loads: cell, from when to when.
        compiled: compilations on tracks of roles: role, from when to when.
        instants: of its own events.
        by_node: pieces of each node, in order.
    """

    graph: str
    start: int
    end: int
    nodes: list[str]
    lanes: list[str] = field(default_factory=list[str])
    pieces: list[Piece] = field(default_factory=list[Piece])
    tails: list[list[Wait]] = field(default_factory=list[list[Wait]])
    loads: list[Piece] = field(default_factory=list[Piece])
    syncs: list[Span] = field(default_factory=list[Span])
    compiled: list[Span] = field(default_factory=list[Span])
    instants: list[Instant] = field(default_factory=list[Instant])
    by_node: dict[str, list[Piece]] = field(default_factory=dict[str, list[Piece]])

    @property
    def seconds(self) -> float:
        """Length."""
        return (self.end - self.start) / 1e9


@dataclass
class Parts:
    """What a trace holds.

    Attributes:
        executions: in order of time.
        spans: inside work and on the tracks of roles; names of graphs and nodes are in ``where``.
        roles: the latter by role.
        versions: arrows of versions, which go through whatever used one and tell nothing of who made what for whom.
    """

    executions: list[Execution]
    spans: list[Span]
    roles: dict[str, list[Span]]
    versions: set[int]


def parts_of(trace: Trace) -> Parts:
    """Take a trace apart."""
    last = max((_latest(each) for each in trace.slices), default=0)
    by_track: dict[int, list[Slice]] = {}
    for each in trace.slices:
        by_track.setdefault(each.track, []).append(each)
    versions = {flow for each in trace.instants if each.name in _OF_VERSIONS for flow in each.flows}
    parts = Parts([], [], {}, versions)
    lanes: dict[str, list[tuple[Track, str, list[Slice]]]] = {}
    ranks: dict[tuple[str, str], int] = {}
    for number, slices in by_track.items():
        track = trace.tracks[number]
        parent = trace.tracks.get(track.parent or 0)
        above = None if parent is None else trace.tracks.get(parent.parent or 0)
        if parent is not None and above is not None and above.name.startswith(_GRAPH):
            graph = above.name.removeprefix(_GRAPH)
            if _is_lane(track.name, parent.name):
                lanes.setdefault(graph, []).append((track, parent.name, slices))
                ranks[graph, parent.name] = parent.rank
                continue
            where = parent.name if track.name.startswith(f"{parent.name}/") else ""
            parts.spans += [] if not where else [_span(where, each, last) for each in slices]
        elif parent is None or not parent.name.endswith(_GROUPS):
            # Rows under a role, such as places of an engine, are alike: together they are one.
            nested = parent is not None and parent.parent is not None
            name = f"{parent.name} {track.name.rstrip('0123456789 ')}s" if nested and parent is not None else track.name
            spans = [_span(name, each, last) for each in slices]
            if track.name.endswith(_LOAD):
                versions.update(flow for each in slices for flow in each.flows)
            parts.roles.setdefault(name, []).extend(spans)
    for graph, rows in lanes.items():
        parts.executions += _executions(graph, rows, ranks, last, parts.spans)
    parts.executions.sort(key=lambda each: each.start)
    for execution in parts.executions:
        _add_roles(execution, parts.roles)
    _add_instants(parts.executions, trace)
    return parts


def _is_lane(name: str, node: str) -> bool:
    return name.startswith(f"{node}/") and name[len(node) + 1 :].isdecimal()


def _latest(each: Slice) -> int:
    return each.start_ns if each.end_ns is None else each.end_ns


def _span(where: str, each: Slice, last: int) -> Span:
    return Span(where, each.name, each.args, each.start_ns, last if each.end_ns is None else each.end_ns)


def _executions(
    graph: str,
    rows: Sequence[tuple[Track, str, list[Slice]]],
    ranks: dict[tuple[str, str], int],
    last: int,
    spans: list[Span],
) -> list[Execution]:
    """The executions of a graph, with all that happened on its lanes."""
    tops = sorted((s.start_ns, last if s.end_ns is None else s.end_ns) for _, _, slices in rows for s in slices if s.depth == 0)
    nodes = sorted(dict.fromkeys(node for _, node, _ in rows), key=lambda node: ranks[graph, node])
    found: list[Execution] = []
    for start, end in tops:
        if not found or start > found[-1].end + _GAP_NS:
            found.append(Execution(graph, start, end, nodes))
        found[-1].end = max(found[-1].end, end)
    for _, node, slices in rows:
        place, lane = -1, _Lane(node, 0)
        for each in slices:
            while place < 0 or each.start_ns > found[place].end:
                lane.close(found[place] if place >= 0 else None)
                place += 1
                lane = _Lane(node, len(found[place].lanes))
            lane.add(each, last, spans)
        lane.close(found[place] if place >= 0 else None)
    for execution in found:
        place = {node: index for index, node in enumerate(nodes)}
        execution.pieces.sort(key=lambda piece: (piece.start, place[piece.node]))  # who hands over at once comes first
        for piece in execution.pieces:
            execution.by_node.setdefault(piece.node, []).append(piece)
    return found


class _Lane:
    """Slices of one worker, as they come, made into pieces and waits."""

    def __init__(self, node: str, number: int) -> None:
        self._node, self._number = node, number
        self._pieces: list[Piece] = []
        self._waits: list[Wait] = []
        self._inside = False  # whether the top slice is a piece

    def add(self, each: Slice, last: int, spans: list[Span]) -> None:
        """The next slice, or one inside it."""
        end = last if each.end_ns is None else each.end_ns
        kind = WAITS.get(each.name)
        if each.depth == 0:
            self._inside = kind is None
            if kind is not None:
                self._wait(Wait(kind, str(each.args.get("for", "")), each.start_ns, end))
            else:
                before = self._pieces[-1] if self._pieces else None
                piece = Piece(
                    self._node, self._number, each.start_ns, end, each.flows, each.args, self._waits, before, room=end
                )
                self._pieces.append(piece)
                self._waits = []
        elif self._inside:
            piece = self._pieces[-1]
            if kind == "pool":
                piece.pools.append(Wait(kind, str(each.args.get("for", "")), each.start_ns, end))
            elif each.name == COMPILE:
                piece.compiled.append((each.start_ns, end))
            spans.append(Span(self._node, each.name, each.args, each.start_ns, end))

    def _wait(self, wait: Wait) -> None:
        if wait.kind == "room" and self._pieces and not self._waits:
            self._pieces[-1].room, self._pieces[-1].room_of = wait.end, wait.what  # others see what was made only then
        self._waits.append(wait)

    def close(self, execution: Execution | None) -> None:
        if execution is not None:
            execution.lanes.append(self._node)
            execution.pieces += self._pieces
            execution.tails.append(self._waits)


def _add_roles(execution: Execution, roles: dict[str, list[Span]]) -> None:
    """What happened beside the workers meanwhile."""
    for name, spans in roles.items():
        mine = [span for span in spans if execution.start <= span.start <= execution.end]
        if name.endswith(_LOAD):
            cell = name.removesuffix(_LOAD)
            loads = [Piece(cell, -1, s.start, s.end, (), s.args, [], None, room=s.end, is_load=True) for s in mine]
            execution.loads += loads
        elif name.endswith(_SYNC):
            execution.syncs += [span._replace(where=name.removesuffix(_SYNC)) for span in mine]
        execution.compiled += [span for span in mine if span.name == COMPILE]
    execution.loads.sort(key=lambda load: load.start)


def _add_instants(executions: Sequence[Execution], trace: Trace) -> None:
    names = {number: track.name.removesuffix(_EVENTS) for number, track in trace.tracks.items() if track.name.endswith(_EVENTS)}
    for instant in trace.instants:
        graph = names.get(instant.track)
        if graph is not None:
            for execution in executions:
                if execution.graph == graph and execution.start <= instant.at_ns <= execution.end + _GAP_NS:
                    execution.instants.append(instant)
                    break

"""Takes a trace apart into executions of graphs, and what else has a name. The one file that knows names of tracks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..trace import OPEN, Gap, Instant, Spans, Trace, Track, Values
from ._named import Named
from ._pieces import Execution, Interval, Piece, Wait

WAITS = {"wait for input": "input", "wait for ticket": "ticket", "wait for pool": "pool", "wait for room": "room"}
COMPILE = "compile"
_GRAPH, _LOAD, _SYNC, _GROUPS, _EVENTS = "graph ", " (load)", " (sync wait)", " groups", " events"
_OF_VERSIONS = ("published", "in force")
_GAP_NS = 100_000
"""Time without any open worker that parts two executions; at work a graph always has one."""


@dataclass(eq=False)
class Parts:
    """What a trace holds.

    Attributes:
        executions: in order of time.
        inside: slices inside work, by node and name.
        roles: slices on tracks of their own, by track and name.
        outermost: of these, those that lie in no other, in the same way.
        versions: arrows of versions, which go through whatever used one and tell nothing of who made what for whom.
        start: of the trace, ns.
        end: of the trace, ns: what is open there ends there.
        num_slices: in all.
        left_out: events that the trace lacks.
    """

    start: int
    end: int
    executions: list[Execution] = field(default_factory=list[Execution])
    inside: dict[tuple[str, str], Named] = field(default_factory=dict[tuple[str, str], Named])
    roles: dict[tuple[str, str], Named] = field(default_factory=dict[tuple[str, str], Named])
    outermost: dict[str, dict[str, Named]] = field(default_factory=dict[str, dict[str, Named]])
    versions: set[int] = field(default_factory=set[int])
    num_slices: int = 0
    left_out: int = 0


class _Row(NamedTuple):
    """A worker's track."""

    node: str
    spans: Spans


def apart(trace: Trace) -> Parts:
    """Take a trace apart."""
    rows = [(trace.tracks[number], spans) for number, spans in trace.spans.items() if len(spans)]
    start = min((spans.starts_ns[0] for _, spans in rows), default=0)
    parts = Parts(start, max((max(spans.starts_ns[-1], max(spans.ends_ns)) for _, spans in rows), default=0))
    parts.num_slices = sum(len(spans) for _, spans in rows)
    parts.versions = {flow for each in trace.instants if each.name in _OF_VERSIONS for flow in each.flows}
    lanes: dict[str, list[_Row]] = {}
    ranks: dict[str, dict[str, int]] = {}
    loads: list[Piece] = []
    for track, spans in rows:
        parent = trace.tracks.get(track.parent or 0)
        above = None if parent is None else trace.tracks.get(parent.parent or 0)
        if parent is not None and above is not None and above.name.startswith(_GRAPH):
            if _is_lane(track.name, parent.name):
                graph = above.name.removeprefix(_GRAPH)
                lanes.setdefault(graph, []).append(_Row(parent.name, spans))
                ranks.setdefault(graph, {})[parent.name] = parent.rank
            elif track.name.startswith(f"{parent.name}/"):
                _beside(parts, parent.name, spans)
        elif track.name.endswith(_LOAD):
            loads += _loads(parts, track.name.removesuffix(_LOAD), spans)
        elif parent is None or not parent.name.endswith(_GROUPS):
            _role(parts, track, parent, spans)
    for graph, workers in lanes.items():
        workers = [_Row(node, _parted(spans, trace.gaps)) for node, spans in workers]
        nodes = sorted(ranks[graph], key=lambda node: ranks[graph][node])
        parts.executions += _executions(parts, graph, nodes, workers)
    parts.executions.sort(key=lambda each: each.start)
    for execution in parts.executions:
        _add_around(execution, parts, loads)
        _add_counters(execution, trace)
        execution.settle()
    _add_instants(parts, trace)
    return parts


def _parted(spans: Spans, gaps: Sequence[Gap]) -> Spans:
    """Slices of a worker of which none crosses a gap: what was open on both sides begins again behind it."""
    for gap in gaps:
        if gap.missing:
            begin = gap.end_ns
            moved = (
                begin if start < begin and (end == OPEN or end > begin) else start
                for start, end in zip(spans.starts_ns, spans.ends_ns, strict=True)
            )  # fmt: skip
            spans = spans.begun_at([*moved])
    return spans


def _is_lane(name: str, node: str) -> bool:
    return name.startswith(f"{node}/") and name[len(node) + 1 :].isdecimal()


def _ends(parts: Parts, spans: Spans) -> Sequence[int]:
    return [parts.end if end < 0 else end for end in spans.ends_ns]


def _beside(parts: Parts, node: str, spans: Spans) -> None:
    """Slices of tasks that a stage started itself."""
    for index, end in enumerate(_ends(parts, spans)):
        _add_named(parts.inside, node, spans, index, end)


def _add_named(found: dict[tuple[str, str], Named], where: str, spans: Spans, index: int, end: int) -> Named:
    name = spans.names[index]
    named = found.get((where, name))
    if named is None:
        named = found[where, name] = Named(where, name)
    named.add(spans.starts_ns[index], end, lambda: spans.args(index))
    return named


def _loads(parts: Parts, cell: str, spans: Spans) -> list[Piece]:
    found: list[Piece] = []
    for index, end in enumerate(_ends(parts, spans)):
        parts.versions.update(spans.flows(index))
        piece = Piece(cell, -1, spans.starts_ns[index], end, (), spans.args(index), [], None, end)
        piece.is_load = True
        found.append(piece)
        _add_named(parts.roles, f"{cell}{_LOAD}", spans, index, end)
    return found


def _role(parts: Parts, track: Track, parent: Track | None, spans: Spans) -> None:
    # Rows under a role, such as places of an engine, are alike: together they are one.
    nested = parent is not None and parent.parent is not None
    where = f"{parent.name} {track.name.rstrip('0123456789 ')}s" if nested and parent is not None else track.name
    outermost = parts.outermost.setdefault(where, {})
    for index, end in enumerate(_ends(parts, spans)):
        named = _add_named(parts.roles, where, spans, index, end)
        if not spans.depths[index]:
            outer = outermost.setdefault(named.name, Named(where, named.name))
            outer.starts.append(spans.starts_ns[index])
            outer.ends.append(end)


# --- executions ---


def _executions(parts: Parts, graph: str, nodes: list[str], workers: Sequence[_Row]) -> list[Execution]:
    found: list[Execution] = []
    ends = [_ends(parts, row.spans) for row in workers]
    for start, end in sorted(
        shift for row, row_ends in zip(workers, ends, strict=True) for shift in _shifts(row.spans, row_ends)
    ):
        if not found or start > found[-1].end + _GAP_NS:
            found.append(Execution(graph, start, end, nodes))
        found[-1].end = max(found[-1].end, end)
    for row, row_ends in zip(workers, ends, strict=True):
        index = 0
        for execution in found:
            index = _work(parts, execution, row, row_ends, index)
    return found


def _shifts(spans: Spans, ends: Sequence[int]) -> list[tuple[int, int]]:
    """From when to when a worker was open without a break."""
    found: list[tuple[int, int]] = []
    since, latest = spans.starts_ns[0], ends[0]
    for start, end in zip(spans.starts_ns, ends, strict=True):
        if start > latest + _GAP_NS:
            found.append((since, latest))
            since = start
        if end > latest:
            latest = end
    return [*found, (since, latest)]


def _work(parts: Parts, execution: Execution, row: _Row, ends: Sequence[int], index: int) -> int:
    """Pieces and waits of a worker in one execution, from an index on; gives the index behind it."""
    node, spans = row
    names, starts, depths, args = spans.names, spans.starts_ns, spans.depths, spans.args
    number, count, until = len(execution.lanes), len(spans), execution.end
    waits: list[Wait] = []
    piece: Piece | None = None
    inside = False
    first = index
    while index < count and starts[index] <= until:
        name, start, end = names[index], starts[index], ends[index]
        kind = WAITS.get(name)
        if depths[index]:
            if inside and piece is not None:
                if kind == "pool":
                    piece.pools = (*piece.pools, Wait(kind, str(args(index).get("for", "")), start, end))
                elif name == COMPILE:
                    piece.compiled = (*piece.compiled, (start, end))
                if kind is None:
                    _add_named(parts.inside, node, spans, index, end)
        elif kind is None:
            told = spans[index]  # details and arrows in one look
            piece = Piece(node, number, start, end, told.flows, told.args, waits, piece, end)
            execution.pieces.append(piece)
            waits, inside = [], True
        else:
            wait = Wait(kind, str(args(index).get("for", "")), start, end)
            if kind == "room" and piece is not None and not waits:
                piece.room, piece.room_of = end, wait.what  # others see what was made only then
            waits.append(wait)
            inside = False
        index += 1
    if index > first:
        execution.lanes.append(node)
        execution.tails.append(waits)
    return index


def _add_around(execution: Execution, parts: Parts, loads: Sequence[Piece]) -> None:
    """What happened beside the workers meanwhile."""
    begin, end = execution.start, execution.end
    execution.loads = [load for load in loads if begin <= load.start <= end]
    for (where, name), named in parts.roles.items():
        found = execution.compiled if name == COMPILE else execution.syncs if where.endswith(_SYNC) else None
        if found is not None:
            around = zip(named.starts, named.ends, strict=True)
            found += [Interval(where.removesuffix(_SYNC), start, stop) for start, stop in around if begin <= start <= end]


def _add_counters(execution: Execution, trace: Trace) -> None:
    """Counters of the graph, and those of no graph."""
    for number, values in trace.counters.items():
        track = trace.tracks[number]
        parent = trace.tracks.get(track.parent or 0)
        if parent is None or not parent.name.startswith(_GRAPH) or parent.name == f"{_GRAPH}{execution.graph}":
            levels = _levels(values, execution.start, execution.end)
            if levels is not None:
                execution.counters.append((track.name, track.unit, *levels))


def _levels(values: Values, begin: int, end: int) -> tuple[float, float] | None:
    """Mean and largest value over a time; ``None`` where there was none yet."""
    whole, at, value, most, seen = 0.0, begin, 0.0, float("-inf"), False
    for when, newer in values:
        if when > end:
            break
        if when > begin:
            whole += value * (when - at)
            most = max(most, value) if seen else most
            at = when
        value, seen = newer, True
    if not seen:
        return None
    return (whole + value * (end - at)) / max(1, end - begin), max(most, value)


def _add_instants(parts: Parts, trace: Trace) -> None:
    names = {number: track.name.removesuffix(_EVENTS) for number, track in trace.tracks.items() if track.name.endswith(_EVENTS)}
    for instant in trace.instants:
        graph = names.get(instant.track)
        if graph is not None:
            _add_instant(parts.executions, graph, instant)
        elif instant.name == "left out of the trace":
            events = instant.args.get("events")
            parts.left_out = max(parts.left_out, events if isinstance(events, int) else 0)


def _add_instant(executions: Sequence[Execution], graph: str, instant: Instant) -> None:
    for execution in executions:
        if execution.graph == graph and execution.start <= instant.at_ns <= execution.end + _GAP_NS:
            execution.instants.append(instant)
            return

"""Says of a trace what bounded each graph in it, and by how much.

The critical path tells where the time went; what widening something would bring is found by doing the same work once more on
paper (``_replay``), since a path cannot tell what comes next once its longest part is shorter. What would bring the most is
what bounded.
"""

import gc
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from ..trace import Gap, Trace
from ._apart import Parts, apart
from ._links import Links
from ._model import Model
from ._path import Paths, Stretch
from ._pieces import Execution, Piece, pools_of
from ._replay import Change, gain, seconds_a_step
from ._told import asked, compiled, slow, stages, stragglers
from ._verdict import GraphVerdict, Kind, Leg, Level, Lever, Part, Unseen, Verdict

_LEAST = 0.03
"""Share of the critical path below which nothing is asked of what it would bring: half of it could not bring two percent."""
_MOST_TASKS = 20_000
"""Pieces of work done again on paper: steps from the end of the execution, which are as it was in its stride."""
_MOST_LEGS = 40


def explain(trace: Trace, servers: Mapping[str, str] | None = None) -> Verdict:
    """Say what bounded the graphs of a trace.

    Args:
        trace: as ``flow.trace.read_trace`` gives it.
        servers: name of the span during which an attempt waits for an answer, by the track of who gives it: of these it is told
            why they were idle.
    """
    with _uncollected():
        parts = apart(trace)
        linked = [(each, Links(each, parts.versions)) for each in parts.executions if each.pieces]
        whose = _pieces([execution for execution, _ in linked], trace.gaps)
        graphs = tuple(
            _graph(execution, links, parts, servers or {}, whose[place]) for place, (execution, links) in enumerate(linked)
        )
        strides = [(links.steps[0].end, execution.end) for execution, links in linked]
        seconds = (parts.end - parts.start) / 1e9
        unseen = tuple(
            Unseen((gap.start_ns - parts.start) / 1e9, (gap.end_ns - gap.start_ns) / 1e9, gap.missing) for gap in trace.gaps
        )
        return Verdict(seconds, parts.num_slices, graphs, slow(parts), compiled(parts, strides), parts.left_out, unseen)


@contextmanager
def _uncollected() -> Generator[None]:
    """Without collection of garbage: of a million records none is any before the end, and to look at them costs a fifth."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _pieces(executions: Sequence[Execution], gaps: Sequence[Gap]) -> list[tuple[int, int]]:
    """Number of each among the pieces that gaps cut one execution into, and how many these are."""
    runs: list[list[Execution]] = []
    for execution in executions:
        before = runs[-1][-1] if runs else None
        follows = before is not None and before.graph == execution.graph
        if follows and before is not None and any(before.start < gap.end_ns <= execution.end for gap in gaps):
            runs[-1].append(execution)
        else:
            runs.append([execution])
    return [(number, len(run)) for run in runs for number, _ in enumerate(run, 1)]


def _graph(
    execution: Execution, links: Links, parts: Parts, servers: Mapping[str, str], piece: tuple[int, int]
) -> GraphVerdict:
    paths = Paths(execution, links)
    assert links.sink is not None, "there are pieces"
    whole = paths.walk(links.steps[-1], links.steps[-1].end, execution.start)
    total = max(1, links.steps[-1].end - execution.start)
    path = _parts(whole, total)
    idle = _idle(execution, links, path)
    levers, experiments = _levers(execution, links, paths, path, sum(part.share for part in idle))
    number, way = _way(execution, links, paths) if links.steps[-1].call else (0, ())
    lengths = sorted(_lengths(execution, links.steps))
    return GraphVerdict(
        graph=execution.graph,
        start=(execution.start - parts.start) / 1e9,
        seconds=execution.seconds,
        sink=links.sink,
        steps=len(links.steps),
        step=lengths[len(lengths) // 2] / 1e9,
        bound=levers[0] if levers else None,
        runners_up=tuple(levers[1:]),
        experiments=experiments,
        stages=stages(execution),
        path=path,
        way=way,
        way_step=number,
        idle=sum(part.share for part in idle),
        idle_by=idle,
        stragglers=stragglers(execution),
        asked=asked(execution, parts, servers),
        levels=tuple(Level(*counter) for counter in execution.counters),
        dropped=_counted(execution, "dropped", "reason"),
        retried=_counted(execution, "retried", "kind"),
        overdue=_counted(execution, "overdue", "node"),
        stalls=tuple(str(i.args.get("why", i.args.get("report", ""))) for i in execution.instants if i.name == "stalled"),
        piece=piece[0],
        pieces=piece[1],
    )


def _parts(way: Iterable[Stretch], total: int) -> tuple[Part, ...]:
    spent: Counter[tuple[str, str]] = Counter()
    for stretch in way:
        spent[stretch.kind, stretch.name] += stretch.ns
    return tuple(Part(kind, name, ns / 1e9, ns / total) for (kind, name), ns in spent.most_common())


def _idle(execution: Execution, links: Links, path: Sequence[Part]) -> tuple[Part, ...]:
    """What the sink waited for in the end, as shares of the whole execution; of several workers, what one did on average.

    While it waits the critical path runs elsewhere. Where it does over all is what counts: during a single wait the item may be
    with a neighbour all the time, who is no slower than it has to be.
    """
    idle = 0
    for piece in execution.by_node[links.sink or ""]:
        free = execution.start if piece.before is None else piece.before.room
        idle += max(0, piece.start - free)
    elsewhere = [part for part in path if part.kind not in ("work", "commit", "compile") or part.name != links.sink]
    away = sum(part.seconds for part in elsewhere)
    if not idle or not away:
        return ()
    scale = idle / execution.lanes.count(links.sink or "") / 1e9 / away
    return tuple(Part(p.kind, p.name, p.seconds * scale, p.seconds * scale / execution.seconds) for p in elsewhere)


def _lengths(execution: Execution, steps: Sequence[Piece]) -> list[int]:
    return [step.end - before for step, before in zip(steps, [execution.start, *(s.end for s in steps)], strict=False)]


def _way(execution: Execution, links: Links, paths: Paths) -> tuple[int, tuple[Leg, ...]]:
    """The critical path of the step of median length: its number, and the way, neighbours that are alike taken together."""
    lengths = _lengths(execution, links.steps)
    place = sorted(range(len(lengths)), key=lambda index: lengths[index])[len(lengths) // 2]
    step = links.steps[place]
    legs: list[Leg] = []
    for stretch in reversed(paths.walk(step, step.end, step.end - lengths[place])):
        item = "" if stretch.piece is None else str(stretch.piece.args.get("item", stretch.piece.args.get("version", "")))
        worker = 0 if stretch.piece is None else execution.lanes[: max(0, stretch.piece.lane)].count(stretch.piece.node)
        leg = Leg(stretch.kind, stretch.name, item, worker, stretch.ns / 1e9)
        if legs and (legs[-1].kind, legs[-1].name) == (leg.kind, leg.name):
            leg = Leg(leg.kind, leg.name, leg.item, leg.worker, leg.seconds + legs[-1].seconds)
            legs.pop()
        legs.append(leg)
    shortest = sorted((leg.seconds for leg in legs), reverse=True)[: _MOST_LEGS + 1][-1] if len(legs) > _MOST_LEGS else 0.0
    return place + 1, tuple(leg for leg in legs if leg.seconds > shortest or not shortest)


def _counted(execution: Execution, name: str, key: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for instant in execution.instants:
        if instant.name == name:
            count = instant.args.get("count", 1)
            found[str(instant.args.get(key, ""))] += count if isinstance(count, int) else 1
    return dict(found.most_common())


def _levers(
    execution: Execution, links: Links, paths: Paths, path: Sequence[Part], idle: float
) -> tuple[list[Lever], dict[str, float]]:
    """What could be widened and what it would bring, the most first; and what more workers would."""
    pieces = _in_stride(execution, links)
    model = Model(execution, links, paths, pieces)
    base = seconds_a_step(model)
    if base <= 0:
        return [], {}
    ends = {execution.nodes[0]: "source", model.sink: "sink"}
    found: list[Lever] = []

    def add(kind: Kind, name: str, share: float, half: Change) -> None:
        found.append(Lever(kind, name, share, gain(model, base, half)))

    for part in path:
        if part.share < _LEAST:
            continue
        if part.kind == "work":
            add(ends.get(part.name, "stage"), part.name, part.share, Change(times={part.name: 0.5}))  # type: ignore[arg-type]
        elif part.kind == "load":
            add("load", part.name, part.share, Change(times={part.name: 0.5}))
        elif part.kind == "compile":
            # Most is compiled before the part that is done again, so its share of the path tells what it cost.
            rest = max(1 - part.share, _NOTHING)
            found.append(Lever("compile", part.name, part.share, 1 / (1 - part.share / 2) - 1, 1 / rest - 1))
    for pool in _waited_for(execution, path):
        share = sum(part.share for part in path if part.kind == "pool" and pool in pools_of(part.name))
        add("pool", pool, share, Change(pools={pool: 2.0}))
    if model.tickets is not None and idle >= _LEAST:
        add("tickets", model.cell, idle, Change(steps_ahead=1))
    found.sort(key=lambda lever: -lever.gain)
    experiments = {lever.name: gain(model, base, Change(workers={lever.name: 2.0})) for lever in found if lever.kind == "stage"}
    return [_with_most(found[0], base, model), *found[1:]] if found else [], experiments


def _waited_for(execution: Execution, path: Sequence[Part]) -> list[str]:
    """Pools that somebody on the critical path waited for."""
    on_path = {part.name for part in path if part.share >= _LEAST}
    waits = (wait for piece in execution.pieces if piece.node in on_path for wait in piece.blocked())
    named = [part.name for part in path if part.kind == "pool" and part.share >= _LEAST]
    return list(dict.fromkeys(pool for what in (*named, *(wait.what for wait in waits)) for pool in pools_of(what)))


_NOTHING, _BOUNDLESS, _FAR = 1e-6, 1e6, 1000


def _with_most(lever: Lever, base: float, model: Model) -> Lever:
    """The same, with what no bound at all would bring."""
    if lever.most is not None:
        return lever
    change = {
        "pool": Change(pools={lever.name: _BOUNDLESS}),
        "tickets": Change(steps_ahead=_FAR),
    }.get(lever.kind, Change(times={lever.name: _NOTHING}))
    return Lever(lever.kind, lever.name, lever.share, lever.gain, gain(model, base, change))


def _in_stride(execution: Execution, links: Links) -> list[Piece]:
    """Pieces of the last steps, as many as are done again in a short while."""
    pieces = execution.pieces
    if len(pieces) <= _MOST_TASKS:
        return pieces
    begin = pieces[-_MOST_TASKS].start
    begin = next((step.end for step in links.steps if step.end >= begin), begin)
    return [piece for piece in pieces if piece.start >= begin] or pieces[-_MOST_TASKS:]

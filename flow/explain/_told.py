"""What a trace tells by counting: shares of time, groups that waited, slow work, compilations. Causes are on the path."""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ._pieces import COMPILE, WAITS, Execution, Parts, Piece, Span
from ._verdict import Asked, Compiled, Slow, Stage, Stragglers

_MOST_VALUES = 64
"""Values of an argument up to which slices are told apart by it: one with more of them names items."""
_IDENTITIES = {"item", "call", "id", "session", "for"}
"""Arguments that name one thing each."""
_LATE = 0.25
_WORST = 5


def stages(execution: Execution) -> tuple[Stage, ...]:
    """Shares of time of every node."""
    spent: dict[str, Counter[str]] = {node: Counter() for node in execution.nodes}
    pools: dict[str, Counter[str]] = {node: Counter() for node in execution.nodes}
    for piece in execution.pieces:
        inside = sum(wait.end - wait.start for wait in piece.pools)
        spent[piece.node] += Counter({"work": max(0, piece.end - piece.start - inside), "pool": inside})
        for wait in piece.waits:
            spent[piece.node][wait.kind] += wait.end - wait.start
        for wait in piece.blocked():
            pools[piece.node][wait.what] += wait.end - wait.start
    for node, waits in zip(execution.lanes, execution.tails, strict=True):
        for wait in waits:
            spent[node][wait.kind] += wait.end - wait.start
    workers = Counter(execution.lanes)
    return tuple(_stage(execution, node, workers[node], spent[node], pools[node]) for node in execution.nodes)


def _stage(execution: Execution, node: str, workers: int, spent: Mapping[str, int], pools: Mapping[str, int]) -> Stage:
    attempts, total = len(execution.by_node.get(node, ())), max(1, sum(spent.values()))
    share = {kind: spent.get(kind, 0) / total for kind in ("work", "input", "ticket", "pool", "room")}
    by_pool = {pool: ns / total for pool, ns in pools.items()}
    return Stage(node, workers, attempts, attempts / max(execution.seconds, 1e-9), **share, pools=by_pool)


def stragglers(execution: Execution) -> Stragglers | None:
    """Groups that waited for one member; ``None`` without groups."""
    waits: list[tuple[int, str]] = []
    groups = taken = 0
    for piece in execution.pieces:
        members = [source for source in piece.sources if "member" in source.args]
        if len(members) < 2:
            continue
        members.sort(key=lambda member: member.room)
        took = members[-1].room - min(member.start for member in members)
        late = members[-1].room - members[-2].room
        groups, taken = groups + 1, taken + took
        if late > _LATE * took:
            waits.append((late, str(members[-1].args.get("item", ""))))
    if not groups:
        return None
    seconds = sum(late for late, _ in waits) / 1e9
    worst = tuple((item, late / 1e9) for late, item in sorted(waits, reverse=True)[:_WORST])
    return Stragglers(groups, len(waits), seconds, seconds / max(taken / 1e9, 1e-9), worst)


def slow(parts: Parts) -> tuple[Slow, ...]:
    """Work by name, and by those arguments that tell few kinds apart."""
    times: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    values: defaultdict[tuple[str, str, str], dict[str, list[int]] | None] = defaultdict(dict[str, list[int]])
    for execution in parts.executions:
        for piece in execution.pieces:
            times[piece.node, piece.node, piece.call].append(piece.end - piece.start)
    for span in _all(parts):
        if span.name in WAITS:
            continue
        length = span.end - span.start
        times[span.where, span.name, ""].append(length)
        for key, value in span.args.items():
            if isinstance(value, str) and key not in _IDENTITIES:
                _add_value(values, (span.where, span.name, key), value, length)
    for (where, name, key), found in values.items():
        if found is not None and len(found) > 1:
            for value, lengths in found.items():
                times[where, name, f"{key}={value}"] = lengths
    rows = [_slow(where, name, detail, sorted(lengths)) for (where, name, detail), lengths in times.items()]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _all(parts: Parts) -> Iterable[Span]:
    """Every span once: what a node's own track of a role shows lies in its workers' rows too."""
    inside = {(span.where, span.name) for span in parts.spans}
    yield from parts.spans
    for spans in parts.roles.values():
        yield from (span for span in spans if (span.where, span.name) not in inside)


def _add_value(
    values: "defaultdict[tuple[str, str, str], dict[str, list[int]] | None]", key: tuple[str, str, str], value: str, length: int
) -> None:
    found = values[key]
    if found is None:
        return
    found.setdefault(value, []).append(length)
    if len(found) > _MOST_VALUES:
        values[key] = None


def _slow(where: str, name: str, detail: str, lengths: Sequence[int]) -> Slow:
    last = len(lengths) - 1
    p50, p90, p99 = (lengths[min(last, int(share * len(lengths)))] / 1e9 for share in (0.5, 0.9, 0.99))
    return Slow(where, name, detail, len(lengths), sum(lengths) / 1e9, p50, p90, p99, lengths[-1] / 1e9)


def compiled(parts: Parts) -> tuple[Compiled, ...]:
    """Compilations, by where."""
    found: defaultdict[str, list[Span]] = defaultdict(list)
    for span in _all(parts):
        if span.name == COMPILE:
            insort(found[span.where], span, key=lambda each: each.start)
    rows: list[Compiled] = []
    for where, spans in found.items():
        seconds = [(span.end - span.start) / 1e9 for span in spans]
        rows.append(Compiled(where, len(spans), sum(seconds), len(spans) - 1, sum(seconds[1:])))
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def asked(execution: Execution, parts: Parts, servers: Mapping[str, str]) -> tuple[Asked, ...]:
    """Time of those that serve others.

    Args:
        execution: in which.
        parts: of the trace.
        servers: name of the span during which somebody waits for an answer, by the track of who gives it.
    """
    found: list[Asked] = []
    for role, request in servers.items():
        spans = [span for span in parts.roles.get(role, ()) if execution.start <= span.start <= execution.end]
        requests = [span for span in parts.spans if span.name == request and execution.start <= span.start <= execution.end]
        if spans and requests:
            askers = {span.where for span in requests}
            attempts = [piece for piece in execution.pieces if piece.node in askers]
            found.append(_asked(execution, role, spans, requests, attempts))
    return tuple(found)


def _asked(
    execution: Execution, role: str, spans: Sequence[Span], requests: Sequence[Span], attempts: Sequence[Piece]
) -> Asked:
    total = max(1, execution.end - execution.start)
    busy = Counter[str]()
    for span in spans:
        busy[span.name] += min(span.end, execution.end) - span.start
    idle = Counter[str]()
    for state, ns in _sweep([spans, requests, [*execution.loads, *execution.syncs], attempts], execution.start, execution.end):
        works, asks, loads, tries = state
        if not works:
            idle["asked" if asks else "loading" if loads else "elsewhere" if tries else "nothing"] += ns
    shares = {kind: idle[kind] / total for kind in ("asked", "loading", "elsewhere", "nothing")}
    return Asked(role, {name: ns / total for name, ns in busy.items()}, **shares)


def _sweep(kinds: Sequence[Sequence[Span | Piece]], start: int, end: int) -> Iterable[tuple[tuple[bool, ...], int]]:
    """Stretches of time by which kinds of intervals were open."""
    events = [(max(each.start, start), kind, 1) for kind, group in enumerate(kinds) for each in group]
    events += [(min(each.end, end), kind, -1) for kind, group in enumerate(kinds) for each in group]
    events.sort()
    counts, at = [0] * len(kinds), start
    for when, kind, change in events:
        if when > at:
            yield tuple(count > 0 for count in counts), when - at
            at = when
        counts[kind] += change
    if end > at:
        yield tuple(count > 0 for count in counts), end - at

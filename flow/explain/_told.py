"""What a trace tells by counting: shares of time, groups that waited, slow work, compilations. Causes are on the path."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ._apart import COMPILE, WAITS, Parts
from ._named import Named
from ._pieces import Execution
from ._verdict import Asked, Compiled, PoolUse, Slow, Stage, Stragglers

Pairs: TypeAlias = Sequence[tuple[int, int]]
"""From when to when, ns."""
_STATES = ("work", "input", "ticket", "pool", "room")
_LATE = 0.25
_WORST = 5


def stages(execution: Execution) -> tuple[Stage, ...]:
    """Shares of time of every node."""
    spent: dict[str, dict[str, int]] = {node: dict.fromkeys(_STATES, 0) for node in execution.nodes}
    pools: dict[str, Counter[str]] = {node: Counter() for node in execution.nodes}
    for node, pieces in execution.by_node.items():
        times = spent[node]
        for piece in pieces:
            times["work"] += piece.end - piece.start
            for wait in piece.waits:
                times[wait.kind] += wait.end - wait.start
                if wait.kind == "pool":
                    pools[node][wait.what] += wait.end - wait.start
            for wait in piece.pools:
                times["work"] -= wait.end - wait.start
                times["pool"] += wait.end - wait.start
                pools[node][wait.what] += wait.end - wait.start
    for node, waits in zip(execution.lanes, execution.tails, strict=True):
        for wait in waits:
            spent[node][wait.kind] += wait.end - wait.start
    workers = Counter(execution.lanes)
    return tuple(_stage(execution, node, workers[node], spent[node], pools[node]) for node in execution.nodes)


def _stage(execution: Execution, node: str, workers: int, spent: Mapping[str, int], pools: Mapping[str, int]) -> Stage:
    attempts, total = len(execution.by_node.get(node, ())), max(1, sum(spent.values()))
    share = {kind: spent[kind] / total for kind in _STATES}
    by_pool = {pool: ns / total for pool, ns in pools.items()}
    return Stage(node, workers, attempts, attempts / max(execution.seconds, 1e-9), **share, pools=by_pool)


def pools(execution: Execution) -> tuple[PoolUse, ...]:
    """How full each pool was, and by how much because of permits that attempts took inside."""
    inside: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for piece in execution.pieces:
        for hold in piece.holds:
            inside[hold.pool][piece.node] += hold.units * (hold.end - hold.start)
    length = max(1, execution.end - execution.start)
    return tuple(
        PoolUse(pool, units, held / units, {node: ns / (units * length) for node, ns in inside[pool].most_common()})
        for pool, (units, held) in execution.pools().items()
        if units > 0
    )


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
    attempts: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for execution in parts.executions:
        for piece in execution.pieces:
            attempts[piece.node, piece.call].append(piece.end - piece.start)
    rows = [_slow(node, node, call, lengths) for (node, call), lengths in attempts.items()]
    for named in _all(parts):
        if named.name not in WAITS:
            rows.append(_slow(named.where, named.name, "", _lengths(named)))
            for key, values in named.lengths_by.items():
                if values is not None and len(values) > 1:
                    rows += [_slow(named.where, named.name, f"{key}={value}", each) for value, each in values.items()]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _all(parts: Parts) -> Iterable[Named]:
    """Everything once: what a node's own role shows lies in the rows of its workers too."""
    yield from parts.inside.values()
    yield from (named for key, named in parts.roles.items() if key not in parts.inside)


def _lengths(named: Named) -> list[int]:
    return [end - start for start, end in zip(named.starts, named.ends, strict=True)]


def _slow(where: str, name: str, detail: str, lengths: list[int]) -> Slow:
    lengths = sorted(lengths)
    last = len(lengths) - 1
    p50, p90, p99 = (lengths[min(last, int(share * len(lengths)))] / 1e9 for share in (0.5, 0.9, 0.99))
    return Slow(where, name, detail, len(lengths), sum(lengths) / 1e9, p50, p90, p99, lengths[-1] / 1e9)


def compiled(parts: Parts, strides: Pairs) -> tuple[Compiled, ...]:
    """Compilations, by where.

    Args:
        parts: of the trace.
        strides: from the end of the first step of each execution to its own end, ns: by then all should be compiled.
    """
    rows: list[Compiled] = []
    for named in _all(parts):
        if named.name == COMPILE:
            again = [
                (end - start) / 1e9
                for start, end in zip(named.starts, named.ends, strict=True)
                if any(begin < start < stop for begin, stop in strides)
            ]
            rows.append(Compiled(named.where, len(named.starts), sum(_lengths(named)) / 1e9, len(again), sum(again)))
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def asked(execution: Execution, parts: Parts, servers: Mapping[str, str]) -> tuple[Asked, ...]:
    """Time of those that serve others.

    Args:
        execution: in which.
        parts: of the trace.
        servers: name of the slice during which somebody waits for an answer, by the track of who gives it.
    """
    found: list[Asked] = []
    for role, request in servers.items():
        requests = [named for (_, name), named in parts.inside.items() if name == request]
        asking = [pair for named in requests for pair in _during(named, execution)]
        work = {name: list(_during(named, execution)) for name, named in parts.outermost.get(role, {}).items()}
        if asking and any(work.values()):
            askers = {named.where for named in requests}
            attempts = [(piece.start, piece.end) for piece in execution.pieces if piece.node in askers]
            found.append(_asked(execution, role, work, asking, attempts))
    return tuple(found)


def _during(named: Named, execution: Execution) -> Iterable[tuple[int, int]]:
    """Slices that began in an execution."""
    begin, end = execution.start, execution.end
    return ((start, stop) for start, stop in zip(named.starts, named.ends, strict=True) if begin <= start <= end)


def _asked(execution: Execution, role: str, work: Mapping[str, Pairs], asking: Pairs, attempts: Pairs) -> Asked:
    total = max(1, execution.end - execution.start)
    busy = {name: sum(min(end, execution.end) - start for start, end in pairs) / total for name, pairs in work.items()}
    loading = [(each.start, each.end) for each in (*execution.loads, *execution.syncs)]
    working = [pair for pairs in work.values() for pair in pairs]
    idle = Counter[str]()
    for (works, asks, loads, tries), ns in _sweep([working, asking, loading, attempts], execution.start, execution.end):
        if not works:
            idle["asked" if asks else "loading" if loads else "elsewhere" if tries else "nothing"] += ns
    shares = {kind: idle[kind] / total for kind in ("asked", "loading", "elsewhere", "nothing")}
    return Asked(role, {name: share for name, share in busy.items() if share}, **shares)


def _sweep(kinds: Sequence[Pairs], start: int, end: int) -> Iterable[tuple[list[bool], int]]:
    """Stretches of time by which kinds of intervals were open."""
    events = [(max(begin, start), kind, 1) for kind, pairs in enumerate(kinds) for begin, _ in pairs]
    events += [(min(stop, end), kind, -1) for kind, pairs in enumerate(kinds) for _, stop in pairs]
    events.sort()
    counts, at = [0] * len(kinds), start
    for when, kind, change in events:
        if when > at:
            yield [count > 0 for count in counts], when - at
            at = when
        counts[kind] += change
    if end > at:
        yield [count > 0 for count in counts], end - at

"""The stall report: who waits for what, since when, held by whom, and whether it can ever end."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from ._core.groups import Groups
from ._core.item import Item
from ._core.node import NodeState
from ._core.state import State
from ._stacks import place_of_task, place_of_thread
from ._waits import TURN, Waiters, Waits
from ._workers.hands import Hands

_OUTSIDE = "  <- not a deadlock: outside call"
_FIRST = {"pool": 0, "ticket": 1, "output": 2, "input": 3}
"""Of the waits of one node, which one tells why it is stuck."""


def headline(idle_s: float, stuck: Sequence[Waiters], waits: Waits, *, loading: bool = False) -> str:
    """The first line."""
    if loading:
        verdict = "not a deadlock of the graph: see which cell is being loaded"
    elif not waits.all or len(stuck) == len(waits.all):
        verdict = "a deadlock: nobody works and nothing is on its way"
    elif stuck:
        names = ", ".join(dict.fromkeys(waiters.name for waiters in stuck))
        verdict = f"a deadlock of {names}; the others are in a call outside, or wait for it"
    else:
        verdict = "not a deadlock: see who is in a call outside"
    return f"stalled {seconds(idle_s)}: nothing was committed; {verdict}"


def body(state: State, waits: Waits, stuck: Sequence[Waiters], now: float, loads: Sequence[tuple[str, str]] = ()) -> list[str]:
    """A line for each node, for each pool, for each load under way, and for what holds the stuck ones."""
    lines: list[str] = []
    for name, rows in _by_node(waits.all).items():
        groups = state.nodes[name].groups
        if state.nodes[name].spec.kind == "group" and groups is not None and groups.open and rows[0].doing == "input":
            lines.append(_line(name, _missing(state, waits, groups)))
        else:
            lines.append(_line(name, "; ".join(_doing(waiters, now) for waiters in rows)))
    lines += [_line(f"pool {pool}", _pool(state, waits, pool, stuck, now)) for pool in state.pools.sizes]
    lines += [_line(*load) for load in loads]
    if stuck:
        lines.append(_line(*explain(waits, stuck)))
    return lines


def explain(waits: Waits, stuck: Sequence[Waiters]) -> tuple[str, str]:
    """Why the stuck ones are: a circle of nodes that wait for each other, or an end of the line where nobody is left."""
    why = {name: min(rows, key=lambda w: _FIRST.get(w.doing, 9)) for name, rows in _by_node(stuck).items()}
    follows = {name: [n for n in waits.waited_for(waiters) if n in why] for name, waiters in why.items()}
    circles = [circle for name in why if (circle := _circle(name, follows))]
    if circles:
        circle = min(circles, key=len)
        return "deadlock", "; ".join(f"{name} {_waits_for(waits, why[name])}" for name in circle)
    last = next((waiters for name, waiters in why.items() if not follows[name]), next(iter(why.values())))
    return "stuck", f"{last.name} {_waits_for(waits, last)}, and nobody is left who could end that"


def seconds(length_s: float) -> str:
    """Write a time, with a space between thousands."""
    return f"{length_s:,.0f} s".replace(",", " ")


def place_of(hands: Hands) -> str:
    """The line of user code in which a worker is; empty where it is in none."""
    if hands.crew.executor is not None:
        for call in hands.crew.executor.calls:
            if call.task is hands.task and call.thread is not None:
                return place_of_thread(call.thread)
    return place_of_task(hands.task)


def _circle(start: str, follows: dict[str, list[str]]) -> list[str]:
    """The shortest way from a node back to itself; empty where there is none."""
    ways = [[start]]
    seen: set[str] = set()
    while ways:
        longer: list[list[str]] = []
        for way in ways:
            for name in follows[way[-1]]:
                if name == start:
                    return way
                if name not in seen:
                    seen.add(name)
                    longer.append([*way, name])
        ways = longer
    return []


def _by_node(waiters: Sequence[Waiters]) -> dict[str, list[Waiters]]:
    rows: defaultdict[str, list[Waiters]] = defaultdict(list)
    for group in waiters:
        rows[group.name].append(group)
    return rows


def _doing(waiters: Waiters, now: float) -> str:
    oldest = min(waiters.hands, key=lambda hands: hands.lane.since)
    count, age = len(waiters.hands), seconds(now - oldest.lane.since)
    if waiters.doing == "work":
        place = place_of(oldest)
        return f"{count} in user code, oldest {age}{' in ' if place else ''}{place}{_OUTSIDE}"
    verb = "waits" if count == 1 else "wait"
    place = place_of(oldest) if waiters.doing == "pool" else ""
    what = {"input": "for input ", "output": "for room on ", "pool": "for pool ", "ticket": "for a ticket to open a group of "}
    text = "for its turn" if waiters.detail == TURN else what[waiters.doing] + waiters.detail
    return f"{count} {verb} {text}, longest {age}{' in ' if place else ''}{place}"


def _waits_for(waits: Waits, waiters: Waiters) -> str:
    if waiters.doing == "pool":
        pools = dict.fromkeys(pool for request in waiters.requests for pool in waits.lacking(request))
        parts = [f"{pool}, held by {_names(waits.holders(pool)) or 'workers that have ended'}" for pool in pools]
        return f"waits for pool {' and '.join(parts) or waiters.detail}"
    if waiters.doing == "output":
        return "waits for its turn" if waiters.detail == TURN else f"waits for room on {waiters.detail}"
    if waiters.doing == "input":
        return f"waits for input of {', '.join(waits.waited_for(waiters)) or 'nobody'}"
    return "waits for a ticket, held by groups on their way"


def _names(holders: Sequence[tuple[Waiters, int]]) -> str:
    return ", ".join(dict.fromkeys(waiters.name for waiters, _ in holders))


def _pool(state: State, waits: Waits, pool: str, stuck: Sequence[Waiters], now: float) -> str:
    size, holders = state.pools.sizes[pool], waits.holders(pool)
    asking = sum(pool in request.needs for request in state.pools.asking)
    text = f"{size - state.pools.free[pool]}/{size} held"
    if size > state.pools.free[pool] and not holders:
        text += " by workers that have ended: a permit was not given back"
    if holders:
        oldest = min((hands for waiters, _ in holders for hands in waiters.hands), key=lambda hands: hands.lane.since)
        place = place_of(oldest)
        outside = _OUTSIDE if all(waiters not in stuck for waiters, _ in holders) else ""
        text += f" by {_names(holders)}: oldest {seconds(now - oldest.lane.since)}{' in ' if place else ''}{place}{outside}"
    return f"{text}; {asking} {'request waits' if asking == 1 else 'requests wait'}" if asking else text


def _missing(state: State, waits: Waits, groups: Groups) -> str:
    """How many groups are open, and where the members are that they lack."""
    lacking = {
        (birth, index)
        for birth, group in groups.open.items()
        for index in range(group.size)
        if index not in group.values and index not in group.failures
    }
    places: Counter[str] = Counter()
    for node in state.nodes.values():
        if node.groups is groups and node.spec.kind != "repeat":
            at_work, waiting = _members(waits, node), _buffered(node)
            places[f"in {node.spec.name}"] += len(lacking & at_work)
            blocked = next((w for w in waits.all if w.node is node and w.doing == "pool"), None)
            where = f"waiting for pool '{blocked.detail}'" if blocked is not None else f"waiting before {node.spec.name}"
            places[where] += len(lacking & waiting)
            lacking -= at_work | waiting
    places["to be made again"] = len(lacking & {_key(item) for item in groups.retries})
    places["done or in a pause before a retry"] = len(lacking) - places["to be made again"]
    missing = sum(places.values())
    held = f"holds {_count(len(groups.open), 'open group')}; {_count(missing, 'member')} missing"
    parts = ", ".join(f"{count} {place}" for place, count in places.items() if count)
    return f"{held}: {parts}" if parts else held


def _members(waits: Waits, node: NodeState) -> set[tuple[int, int]]:
    crew = next((hands.crew for waiters in waits.all if waiters.node is node for hands in waiters.hands), None)
    return set() if crew is None else {_key(item) for item in crew.attempts.values() if item.member is not None}


def _buffered(node: NodeState) -> set[tuple[int, int]]:
    return {_key(item) for edge in node.inputs for item in edge.buffer if item.member is not None}


def _key(item: Item) -> tuple[int, int]:
    return item.birth, item.member or 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _line(name: str, text: str) -> str:
    return f"  {name:<14} {text}"

"""The watch on a run that stopped moving: who waits for what, since when, and whether it can ever end."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from ._core.state import State
from ._errors import Stalled
from ._lane import Lane

_TICK_S = 1.0


async def watch(state: State, lanes: Sequence[Lane], loading: Callable[[], bool], stall_s: float) -> None:
    """Return never; raise when nothing was committed for too long.

    A run in which no worker runs user code and nothing is being loaded cannot move again, which is reported after two looks.
    Otherwise it is a slow call outside, and gets ``stall_s`` seconds.

    Raises:
        Stalled: with the report.
    """
    loop = asyncio.get_running_loop()
    commits, since, stuck = state.commits, loop.time(), 0
    while True:
        await asyncio.sleep(min(_TICK_S, stall_s / 2))
        if state.commits != commits:
            commits, since, stuck = state.commits, loop.time(), 0
            continue
        busy = loading() or any(lane.open and lane.state == "work" for lane in lanes)
        stuck = 0 if busy else stuck + 1
        idle_s = loop.time() - since
        if stuck >= 2 or idle_s >= stall_s:
            raise Stalled(report(state, lanes, idle_s, deadlock=not busy))


def report(state: State, lanes: Sequence[Lane], idle_s: float, *, deadlock: bool) -> str:
    """Write who waits for what."""
    verdict = (
        "a deadlock: nobody works and nothing is on its way" if deadlock else "not a deadlock: see who is in a call outside"
    )
    now = asyncio.get_running_loop().time()
    lines = [f"stalled {idle_s:.0f} s: nothing was committed; {verdict}"]
    by_node: defaultdict[str, list[Lane]] = defaultdict(list)
    for lane in lanes:
        if lane.open:
            by_node[lane.node].append(lane)
    for name, workers in by_node.items():
        states: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for lane in workers:
            detail = "" if lane.state == "work" else lane.detail
            states[(lane.state, detail)].append(now - lane.since)
        parts = [
            f"{len(ages)} {_VERBS[kind]}{' ' + detail if detail else ''}, longest {max(ages):.0f} s"
            for (kind, detail), ages in states.items()
        ]
        lines.append(f"  {name:<14} {'; '.join(parts)}")
    for name, node in state.nodes.items():
        if node.spec.kind == "group" and node.groups is not None and node.groups.open:
            missing = sum(g.size - len(g.values) - len(g.failures) for g in node.groups.open.values())
            lines.append(f"  {name:<14} {len(node.groups.open)} open groups, {missing} members missing")
    for pool, size in state.pools.sizes.items():
        lines.append(f"  pool {pool:<9} {size - state.pools.free[pool]}/{size} units out, {state.pools.waiting} requests wait")
    return "\n".join(lines)


_VERBS = {
    "input": "wait for input", "ticket": "wait for a ticket", "pool": "wait for pool", "work": "in user code",
    "output": "wait for room on",
}  # fmt: skip

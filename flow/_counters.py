"""What a running graph tells its trace regularly: how much waits on each edge, open groups, and what its workers did."""

import asyncio
from collections.abc import Sequence

from ._core.state import State
from ._lane import Lane
from .trace import Recorder

_EVERY_S = 0.1


async def count(state: State, lanes: Sequence[Lane], recorder: Recorder, parent: int | None) -> None:
    """Write the counters again and again until cancelled. ``parent``: the graph's own track."""
    edges = {
        edge: recorder.counter(f"{edge.name} depth", "items", parent) for node in state.nodes.values() for edge in node.inputs
    }
    groups = {
        node.groups: recorder.counter(f"{name} open groups", "groups", parent)
        for name, node in state.nodes.items()
        if node.spec.kind == "group" and node.groups is not None
    }
    pools = {
        name: (recorder.counter(f"pool {name} held", "units", parent), recorder.counter(f"pool {name} units", "units", parent))
        for name in state.pools.sizes
    }
    while True:
        at = int(asyncio.get_running_loop().time() * 1e9)
        for channel, track in edges.items():
            recorder.count(track, len(channel), at)
        for table, track in groups.items():
            recorder.count(track, len(table.open), at)
        for name, (held, size) in pools.items():
            recorder.count(held, state.pools.sizes[name] - state.pools.free[name], at)
            recorder.count(size, state.pools.sizes[name], at)
        for lane in lanes:
            lane.hand_over()
        await asyncio.sleep(_EVERY_S)

"""What a running graph tells its trace regularly: what waits, what is held, how fast it goes, and what its workers did."""

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ._core.freshness import Admission
from ._core.node import NodeState
from ._core.state import State
from ._lane import Lane
from ._scribe import Scribe

_EVERY_S = 0.1
_SLOWLY = 10
"""Times after which rates, the loop's lag and memory are told: once a second."""
_WINDOW = 10
"""Seconds that a rate looks back."""


class Counters:
    """The counters of one run. A value is written when it changes.

    Args:
        state: the run's moment.
        lanes: all workers.
        scribe: of the same run.
    """

    def __init__(self, state: State, lanes: Sequence[Lane], scribe: Scribe) -> None:
        self._state, self._lanes, self._recorder, self._scribe = state, lanes, scribe.recorder, scribe
        self._last: dict[tuple[str, str], tuple[int, float]] = {}
        self._rates = {name: _Rate(node) for name, node in state.nodes.items()}
        by_cell = {node.admission.cell: node.admission for node in state.nodes.values() if node.admission is not None}
        self._admissions = {f"{cell} " if len(by_cell) > 1 else "": admission for cell, admission in by_cell.items()}
        self._late_s = 0.0

    def late(self, late_s: float) -> None:
        """The loop ran a timer so many seconds late."""
        self._late_s = max(self._late_s, late_s)

    async def write(self) -> None:
        """Write the counters again and again until cancelled."""
        loop, times = asyncio.get_running_loop(), 0
        try:
            while True:
                self._fast()
                if times % _SLOWLY == 0:
                    self._slow()
                for lane in self._lanes:
                    lane.hand_over()
                self._scribe.tick()
                times += 1
                due = loop.time() + _EVERY_S
                await asyncio.sleep(_EVERY_S)
                self.late(loop.time() - due)
        finally:
            self._fast()  # what is held when the run ends is not held for ever

    def _fast(self) -> None:
        for name, node in self._state.nodes.items():
            for edge in node.inputs:
                self._tell(f"{edge.name} depth", len(edge), "items")
                if edge.max_cost is not None:
                    self._tell(f"{edge.name} cost", edge.cost, "cost")
            if node.spec.kind == "group" and node.groups is not None:
                self._tell(f"{name} open groups", len(node.groups.open), "groups")
        pools = self._state.pools
        for name, size in pools.sizes.items():
            self._tell(f"pool {name} held", size - pools.free[name], "units")
            self._tell(f"pool {name} units", size, "units")
        for prefix, admission in self._admissions.items():
            self._tell(f"{prefix}tickets held", admission.held, "groups")
            self._tell(f"{prefix}tickets free", admission.capacity - admission.held, "groups")
            self._tell(f"{prefix}lag", _lag(admission), "versions")

    def _slow(self) -> None:
        now = asyncio.get_running_loop().time()
        for name, rate in self._rates.items():
            per_minute, overdue = rate.since(now)
            if per_minute is not None:
                self._tell(f"{name} rate", per_minute, "items/min")
            if overdue is not None:
                self._tell(f"{name} overdue", overdue, "share")
        self._tell("loop lag", round(self._late_s * 1e3, 1), "ms")
        self._late_s = 0.0
        resident = _resident_bytes()
        if resident is not None:
            self._tell("host memory", round(resident / 1e6), "MB", own=False)

    def _tell(self, name: str, value: float, unit: str, *, own: bool = True) -> None:
        """Write a value that changed, under the graph or under no graph."""
        known = self._last.get((name, unit))
        if known is None:
            track = self._recorder.counter(name, unit, self._scribe.parent if own else None)
        elif known[1] == value:
            return
        else:
            track = known[0]
        self._last[name, unit] = track, value
        self._recorder.count(track, value, int(asyncio.get_running_loop().time() * 1e9))


class _Rate:
    """How fast a node goes, and how many of its attempts run into their deadline, over the last seconds."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._seen: deque[tuple[float, int, int, int]] = deque(maxlen=_WINDOW + 1)

    def since(self, now: float) -> tuple[float | None, float | None]:
        """Items handed on a minute, for a sink those taken; and the share of attempts that were overdue.

        ``None`` before there is a second to look at, and the second also for a node without a deadline and while no attempt
        ends.
        """
        node, meter = self._node, self._node.meter
        items = sum(edge.put_count for edge in node.outputs) if node.outputs else meter.finished
        ended = meter.finished + meter.dropped.total() + meter.retried
        self._seen.append((now, items, ended, meter.overdue))
        at, items_then, ended_then, overdue_then = self._seen[0]
        if now <= at:
            return None, None
        per_minute = round((items - items_then) / (now - at) * 60, 1)
        attempts = ended - ended_then
        timed = node.spec.deadline_s is not None and attempts > 0
        return per_minute, round((meter.overdue - overdue_then) / attempts, 3) if timed else None


def _lag(admission: Admission) -> int:
    """Steps completed since the version in force was made."""
    return admission.step - admission.in_force


def _resident_bytes() -> int | None:
    """Resident memory of the process; ``None`` where the system does not tell it cheaply."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None

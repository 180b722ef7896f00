"""The watch on a run that stopped moving: it tells a deadlock from a slow call outside, and fails the run before it hangs.

A deadlock of everybody fails the run after two looks. A deadlock of some, while the rest works on, is told once. Where only
calls outside are waited for, they get the stall time.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ._core.state import State
from ._errors import Stalled
from ._loading import Loading
from ._report import body, explain, headline
from ._scribe import Scribe
from ._waits import Waits
from ._workers.burst import asynchronous
from ._workers.hands import Hands

_LOG = logging.getLogger("headrace")
_TICK_S = 1.0
_PART_S = 10.0
"""Seconds after which a part of the graph that waits is looked at."""
_LATE_S = 0.05
_LATE_AGAIN_S = 60.0


class Watch:
    """Watches over one run.

    Args:
        state: the run's moment.
        workers: its workers.
        loading: its feedback.
        scribe: writes what it finds into the trace; ``None`` where nobody records.
        stall_s: seconds without a commit after which the run fails; ``None`` waits for ever, for a deadlock too.
    """

    def __init__(
        self,
        state: State,
        workers: Sequence[Hands],
        loading: Loading,
        scribe: Scribe | None,
        stall_s: float | None,
    ) -> None:
        self._state, self._workers, self._loading, self._scribe, self._stall_s = state, workers, loading, scribe, stall_s
        self._loop = asyncio.get_running_loop()
        self._told: set[frozenset[str]] = set()
        self._late_at = -_LATE_AGAIN_S

    async def look(self) -> None:
        """Look until cancelled.

        Raises:
            Stalled: nothing was committed for too long; with the report.
        """
        commits, since, stuck, part_at = self._state.commits, self._loop.time(), 0, self._loop.time() + _PART_S
        tick_s = _TICK_S if self._stall_s is None else min(_TICK_S, self._stall_s / 2)
        while True:
            due = self._loop.time() + tick_s
            await asyncio.sleep(tick_s)
            now = self._loop.time()
            self.late(now - due)
            if now >= part_at:
                part_at = now + _PART_S
                self._look_at_parts(now)
            if self._state.commits != commits or self._stall_s is None:
                commits, since, stuck = self._state.commits, now, 0
                continue
            waits = self._waits()
            stuck = stuck + 1 if len(waits.stuck(deadlines=True)) == len(waits.all) and not self._loading.under_way else 0
            if stuck >= 2 or now - since >= self._stall_s:
                raise Stalled(self._report(waits, now - since, now))

    def late(self, late_s: float) -> None:
        """Warn, once a minute at most, of a loop that ran a timer late: everybody waited while one call computed."""
        now = self._loop.time()
        if late_s < _LATE_S or now < self._late_at + _LATE_AGAIN_S:
            return
        self._late_at = now
        names = dict.fromkeys(
            hands.lane.node
            for hands in self._workers
            if (hands.crew.executor is None or asynchronous(hands.node.spec.stage))
            and (hands.lane.since >= now - late_s or hands.lane.state == "work")
        )
        _LOG.warning(
            "the event loop stood still for %.0f ms; at work on it: %s. Put what computes into a plain function on threads: "
            "placement=Threads()",
            late_s * 1e3,
            ", ".join(names) or "nobody of the graph",
        )

    def _instant(self, name: str, args: Mapping[str, Any]) -> None:
        if self._scribe is not None:
            self._scribe.instant(name, args)

    def _waits(self, patience_s: float = 0.0) -> Waits:
        return Waits(self._state, self._workers, bool(self._loading.under_way), patience_s, self._loop.time())

    def _look_at_parts(self, now: float) -> None:
        waits = self._waits(_PART_S)
        stuck = waits.stuck(deadlines=True)
        names = frozenset(waiters.name for waiters in stuck)
        if not stuck or len(stuck) == len(waits.all) or names in self._told:
            return
        self._told.add(names)
        kind, why = explain(waits, stuck)
        text = f"a part of the graph can never move again, while the rest works on: {', '.join(sorted(names))}; {kind}: {why}"
        _LOG.warning("%s", text)
        report = "\n".join([text, *body(self._state, waits, stuck, now, self._loading.told(now))])
        self._instant("a part is stuck", {"why": text, "report": report})

    def _report(self, waits: Waits, idle_s: float, now: float) -> str:
        stuck, loads = waits.stuck(deadlines=False), self._loading.told(now)
        first = headline(idle_s, stuck, waits, loading=bool(loads))
        text = "\n".join([first, *body(self._state, waits, stuck, now, loads)])
        self._instant("stalled", {"why": first, "report": text})
        for waiters in stuck:
            args = {"node": waiters.name, "waits for": f"{waiters.doing} {waiters.detail}", "workers": len(waiters.hands)}
            self._instant("stuck", args)
        return text

"""One worker's time: in which state it is, since when, and the same as slices in the trace.

The only place where time is attributed, so the shares of a stage add up to its worker time. What user code shows inside its
work is in ``_inside``.

A change of state is two entries in a list (when, and what begins). What they say is worked out later and on another thread: a
stretch of quick items would otherwise cost less than its own slices.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ._arrows import flow_id, version_id
from ._core.item import Item
from ._core.meter import Meter, State
from ._errors import format_path
from ._inside import Inside
from .trace import Recorder
from .trace._recorder import Happens

Path = tuple[int, ...]

_SLICES: Mapping[State, str] = {
    "input": "wait for input", "ticket": "wait for ticket", "pool": "wait for pool", "output": "wait for room",
}  # fmt: skip
_FOR = " \0 "
_MOST_MARKS = 256


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The clock of a loop's timers, read directly: half the cost of asking the loop, and exact where it rounds, as uvloop does.

    A loop in virtual time has a clock of its own and is asked.
    """
    return time.monotonic if abs(loop.time() - time.monotonic()) < 1.0 else loop.time


class Shown(NamedTuple):
    """A slice of work: the items whose arrows go through it, its details."""

    paths: Sequence[Path]
    args: Mapping[str, Any]
    ids: Sequence[int] = ()
    """Arrows that are no item's."""


class Stretch:
    """Slices of work on one item after another with no wait in between.

    An item that takes longer than ``QUICK_S`` has a slice of its own. Quick ones that follow on each other share one, since a
    slice for each item of a microsecond would cost more than the item, and fill the trace with what nobody can see. It counts
    them and names the first; an arrow of the others goes past, from where they were before to where they go on.

    Args:
        began: time in seconds at which it begins.
        first: path of the first item.
        within: where what is shown inside the item in hand is noted.

    Attributes:
        within: that list; where it is not empty, the item has a slice of its own, whatever it took.
    """

    QUICK_S = 10e-6

    __slots__ = ("_first", "_marks", "_start", "within")

    def __init__(self, began: float, first: Path, within: list[Any] | None = None) -> None:
        self._marks: list[Any] = []
        self._start, self._first = began, first
        self.within: list[Any] = [] if within is None else within

    def slow(self, path: Path, began: float, now: float, quick: int, following: Path) -> None:
        """After ``quick`` quick ones an item took from ``began`` until now; ``following`` is the next."""
        if quick:
            self._marks += (self._start, (self._first, quick))
        self._marks += (began, (path, 1))
        if self.within:
            self._marks += self.within
            self.within.clear()
        self._start, self._first = now, following

    def end(self, now: float, quick: int) -> list[Any]:
        """After ``quick`` more the stretch is over.

        Returns:
            All marks: in turn a time, and what was worked on from then on; at last nothing.
        """
        if quick:
            self._marks += (self._start, (self._first, quick))
        self._marks += (now, None)
        return self._marks


class Lane:
    """Time and trace of one worker.

    Attributes:
        node: name of its node.
        state: what it does now.
        since: loop time since when.
        open: False once the worker has ended.
        detail: what it waits for or works on, for the stall report.
        clock: gives the loop's time.
        recorder: where slices go; ``None`` where nobody records.
        inside: shows what user code does inside the work.
    """

    __slots__ = (
        "_cell", "_handing", "_marks", "_meter", "_name", "_run", "_track", "_waits", "clock", "detail", "inside", "node",
        "open", "recorder", "since", "state",
    )  # fmt: skip

    def __init__(
        self,
        node: str,
        index: int,
        meter: Meter,
        clock: Callable[[], float],
        recorder: Recorder | None = None,
        parent: int | None = None,
        run: int = 0,
        cell: str | None = None,
    ) -> None:
        self.node = node
        self._meter, self.clock, self.recorder, self._run, self._cell = meter, clock, recorder, run, cell
        self._name = f"{node}/{index}"
        self._track = 0 if recorder is None else recorder.track(self._name, parent, rank=index)
        self.open = True
        self.state: State = "input"
        self.since = clock()
        self.detail = ""
        self._waits: dict[State, tuple[str, str]] = {}
        self._marks: list[Any] = [self.since, _SLICES["input"]]
        self._handing = threading.Lock()
        self.inside = Inside(self._name, parent, recorder, clock, self._marks, self._handing)

    def own(self) -> None:
        """The calling task is this lane's worker from now on."""
        self.inside.own()

    def enter(self, state: State, detail: str = "") -> None:
        """Begin to wait. Entering the state it is in only changes the detail."""
        self.detail = detail
        if state == self.state:
            return
        now = self._change(state)
        if self.recorder is not None:
            wait = self._waits.get(state)
            if wait is None or wait[0] != detail:
                wait = self._waits[state] = (detail, f"{_SLICES[state]}{_FOR}{detail}")
            self._marks += (now, wait[1])
            self.inside.attempt += 1

    def work(self, item: Item) -> None:
        """Begin an attempt at an item."""
        if self.recorder is not None:
            self._marks += (self._change("work"), (item.path, item.birth, item.member, item.retry, item.seen))
            self.inside.attempt += 1
            if len(self._marks) > _MOST_MARKS:
                self.hand_over()
        elif self.state != "work":
            self._change("work")

    def work_on(self, paths: Sequence[Path], args: Mapping[str, Any], detail: str = "", ids: Sequence[int] = ()) -> None:
        """Begin other work, on these items. ``ids``: arrows that are no item's."""
        now, self.detail = self._change("work"), detail
        if self.recorder is not None:
            self._marks += (now, Shown(paths, args, ids))
            self.inside.attempt += 1

    def stretch(self, began: float, first: Path) -> Stretch | None:
        """Begin work on one item after another. Gives what to note them on, where somebody records."""
        if self.state != "work":
            self._meter.seconds[self.state] += began - self.since
            self.state, self.since = "work", began
        if self.recorder is None:
            return None
        within = self.inside.row = list[Any]()
        return Stretch(began, first, within)

    def end_stretch(self, marks: list[Any]) -> None:
        """The stretch is over; what comes next is not begun."""
        self.inside.row = self._marks
        self._marks += marks
        self.inside.attempt += 1
        if len(self._marks) > _MOST_MARKS:
            self.hand_over()

    def move(self, seconds: float, source: State, target: State) -> None:
        """Book a part of the time in one state under another."""
        if seconds > 0:
            self._meter.seconds[source] -= seconds
            self._meter.seconds[target] += seconds

    def hand_over(self) -> None:
        """Give the recorder what happened so far."""
        if self.recorder is not None:
            with self._handing:  # a stage on a thread opens spans while the loop hands over
                marks = self._marks.copy()
                self._marks.clear()
            if marks:
                self.recorder.series(self._track, marks, self._about)

    def _change(self, state: State) -> float:
        now = self.clock()
        self._meter.seconds[self.state] += now - self.since
        self.state, self.since = state, now
        return now

    def _about(self, what: Any) -> tuple[str, Sequence[int], Mapping[str, Any]]:
        """Name, arrows and details of a slice."""
        if isinstance(what, str):  # a wait, and what for
            name, _, detail = what.partition(_FOR)
            return name, (), {"for": detail} if detail else {}
        if isinstance(what, Shown):
            return self.node, [*(flow_id(self._run, path) for path in what.paths), *what.ids], what.args
        if len(what) == 2:
            path, count = what
            args: dict[str, Any] = {"item": format_path(path)}
            return self.node, [flow_id(self._run, path)], args | {"items": count} if count > 1 else args
        path, birth, member, retry, seen = what
        args = {"item": format_path(path), "birth": birth}
        if member is not None:
            args["member"] = member
        if retry:
            args["retry"] = retry
        if seen is not None:
            args["version"] = seen
            if self._cell is not None:
                return self.node, (flow_id(self._run, path), version_id(self._run, self._cell, seen)), args
        return self.node, (flow_id(self._run, path),), args

    def close(self) -> None:
        """The worker is gone. Harmless the second time."""
        if not self.open:
            return
        self.open = False
        now = self.clock()
        self._meter.seconds[self.state] += now - self.since
        self.since = now
        self._marks += (now, None)
        self.hand_over()

    def held(self, needs: Mapping[str, int], since_s: float) -> None:
        """Units of pools are given back that were taken inside the work. A moment and no slice: what is held need not nest."""
        now, strand = self.clock(), self.inside.strand()
        for pool, units in needs.items():
            args = {"pool": pool, "units": units, "seconds": now - since_s}
            self.inside.happens(strand, now, Happens("permit held", args))

    @contextmanager
    def waiting_inside(self, state: State, detail: str) -> Generator[None]:
        """Time inside the work that belongs to another state, as a wait for a permit.

        A task that the stage started itself waits beside others that work, so its wait is a slice and no state.
        """
        if not self.inside.is_worker():
            with self.inside.span(_SLICES[state], {"for": detail}):
                yield
            return
        before, self.detail = self.detail, detail
        now = self.clock()
        self._meter.seconds[self.state] += now - self.since
        outer, self.state, self.since = self.state, state, now
        try:
            with self.inside.span(_SLICES[state], {"for": detail}):
                yield
        finally:
            now = self.clock()
            self._meter.seconds[self.state] += now - self.since
            self.state, self.since, self.detail = outer, now, before

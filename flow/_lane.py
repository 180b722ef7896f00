"""One worker's time: in which state it is, since when, and the same as slices in the trace.

The only place where time is attributed, so the shares of a stage add up to its worker time. Spans opened by tasks that a
stage starts itself get tracks of their own, since slices of one track must nest.

A change of state is two entries in a list (when, and what begins). What they say is worked out later and on another thread: a
stretch of quick items would otherwise cost less than its own slices.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ._core.item import Item
from ._core.meter import Meter, State
from ._errors import format_path
from .trace import Recorder

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


class Stretch:
    """Slices of work on one item after another with no wait in between.

    An item that takes longer than ``QUICK_S`` has a slice of its own. Quick ones that follow on each other share one, since a
    slice for each item of a microsecond would cost more than the item, and fill the trace with what nobody can see. It counts
    them and names the first; an arrow of the others goes past, from where they were before to where they go on.

    Args:
        began: time in seconds at which it begins.
        first: path of the first item.
    """

    QUICK_S = 10e-6

    __slots__ = ("_first", "_marks", "_start")

    def __init__(self, began: float, first: Path) -> None:
        self._marks: list[Any] = []
        self._start, self._first = began, first

    def slow(self, path: Path, began: float, now: float, quick: int, following: Path) -> None:
        """After ``quick`` quick ones an item took from ``began`` until now; ``following`` is the next."""
        if quick:
            self._marks += (self._start, (self._first, quick))
        self._marks += (began, (path, 1))
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
    """

    __slots__ = (
        "_free", "_handing", "_marks", "_meter", "_name", "_parent", "_run", "_stacks", "_task", "_track", "_waits", "clock",
        "detail", "node", "open", "recorder", "since", "state",
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
    ) -> None:
        self.node = node
        self._meter, self.clock, self.recorder, self._parent, self._run = meter, clock, recorder, parent, run
        self._name = f"{node}/{index}"
        self._track = 0 if recorder is None else recorder.track(self._name, parent, rank=index)
        self._task: asyncio.Task[Any] | None = None
        self._free: list[int] = []
        self._stacks: dict[Hashable, list[int]] = {}
        self.open = True
        self.state: State = "input"
        self.since = clock()
        self.detail = ""
        self._waits: dict[State, tuple[str, str]] = {}
        self._marks: list[Any] = [self.since, _SLICES["input"]]
        self._handing = threading.Lock()

    def own(self) -> None:
        """The calling task is this lane's worker from now on."""
        self._task = asyncio.current_task()

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

    def work(self, item: Item) -> None:
        """Begin an attempt at an item."""
        if self.recorder is not None:
            self._marks += (self._change("work"), (item.path, item.birth, item.member, item.retry, item.seen))
            if len(self._marks) > _MOST_MARKS:
                self.hand_over()
        elif self.state != "work":
            self._change("work")

    def work_on(self, paths: Sequence[Path], args: Mapping[str, Any], detail: str = "") -> None:
        """Begin other work, on these items."""
        now, self.detail = self._change("work"), detail
        if self.recorder is not None:
            self._marks += (now, Shown(paths, args))

    def stretch(self, began: float, first: Path) -> Stretch | None:
        """Begin work on one item after another. Gives what to note them on, where somebody records."""
        if self.state != "work":
            self._meter.seconds[self.state] += began - self.since
            self.state, self.since = "work", began
        return None if self.recorder is None else Stretch(began, first)

    def end_stretch(self, marks: list[Any]) -> None:
        """The stretch is over; what comes next is not begun."""
        self._marks += marks
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
                marks, self._marks = self._marks, []
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
            return self.node, [flow_id(self._run, path) for path in what.paths], what.args
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
        return self.node, [flow_id(self._run, path)], args

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

    @contextmanager
    def span(self, name: str, args: Mapping[str, Any]) -> Generator[None]:
        """A slice inside the work of this lane."""
        recorder = self.recorder
        if recorder is None:
            yield
            return
        task = _current_task()
        track = self._open_track(task)
        if track == self._track:
            self.hand_over()  # so that what it lies in comes first
        recorder.begin(track, name, self._now(), args or None)
        try:
            yield
        finally:
            recorder.end(track, self._now())
            self._close_track(task, track)

    def spent(self, name: str, began_s: float, ended_s: float, args: Mapping[str, Any]) -> None:
        """A slice inside the work of this lane that is over; none was begun or ended there since it began."""
        if self.recorder is None:
            return
        task = _current_task()
        track = self._open_track(task)
        if track == self._track:
            self.hand_over()
        self.recorder.begin(track, name, int(began_s * 1e9), args or None)
        self.recorder.end(track, int(ended_s * 1e9))
        self._close_track(task, track)

    def remote(self, task: int, name: str, args: Mapping[str, Any], at_s: float, begins: bool) -> None:
        """A span of this worker's attempt began or ended in a process; 0 is the attempt itself, others are tasks beside it."""
        if self.recorder is None:
            return
        owner = self._task if task == 0 else task
        if begins:
            track = self._open_track(owner)
            if track == self._track:
                self.hand_over()
            self.recorder.begin(track, name, int(at_s * 1e9), args or None)
        else:
            track = self._track if owner is self._task else self._stacks[owner][-1]
            self.recorder.end(track, int(at_s * 1e9))
            self._close_track(owner, track)

    @contextmanager
    def waiting_inside(self, state: State, detail: str) -> Generator[None]:
        """Time inside the work that belongs to another state, as a wait for a permit.

        A task that the stage started itself waits beside others that work, so its wait is a slice and no state.
        """
        if _current_task() is not self._task:
            with self.span(_SLICES[state], {"for": detail}):
                yield
            return
        before, self.detail = self.detail, detail
        now = self.clock()
        self._meter.seconds[self.state] += now - self.since
        outer, self.state, self.since = self.state, state, now
        try:
            with self.span(_SLICES[state], {"for": detail}):
                yield
        finally:
            now = self.clock()
            self._meter.seconds[self.state] += now - self.since
            self.state, self.since, self.detail = outer, now, before

    def _now(self) -> int:
        return int(self.clock() * 1e9)

    def _open_track(self, task: Hashable) -> int:
        if task is self._task or task is None:
            return self._track
        assert self.recorder is not None
        stack = self._stacks.setdefault(task, [])
        if stack:
            track = stack[-1]
        elif self._free:
            track = self._free.pop()
        else:
            track = self.recorder.track(f"{self._name} +{len(self._stacks)}", self._parent)
        stack.append(track)
        return track

    def _close_track(self, task: Hashable, track: int) -> None:
        if task is None or task not in self._stacks:
            return
        stack = self._stacks[task]
        stack.pop()
        if not stack:
            del self._stacks[task]
            self._free.append(track)


def _current_task() -> "asyncio.Task[Any] | None":
    """The task that runs now; ``None`` on a thread, where a stage does one thing at a time on the lane's own track."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def flow_id(run: int, path: Path) -> int:
    """Number that links the slices of one item of one run in a trace."""
    return hash((run, *path)) % 2**64  # of whole numbers only, so the same in every process

"""One worker's time: in which state it is, since when, and the same as slices in the trace.

The only place where time is attributed, so the shares of a stage add up to its worker time. Spans opened by tasks that a
stage starts itself get tracks of their own, since slices of one track must nest.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ._core.meter import Meter, State
from .trace import Recorder

T = TypeVar("T")

_SLICES: Mapping[State, str] = {
    "input": "wait for input", "ticket": "wait for ticket", "pool": "wait for pool", "output": "wait for room",
}  # fmt: skip


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The clock of a loop's timers, read directly: half the cost of asking the loop, and exact where it rounds, as uvloop does.

    A loop in virtual time has a clock of its own and is asked.
    """
    return time.monotonic if abs(loop.time() - time.monotonic()) < 1.0 else loop.time


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
        "_free", "_in_slice", "_meter", "_name", "_parent", "_stacks", "_task", "_track", "clock", "detail", "node", "open",
        "recorder", "since", "state",
    )  # fmt: skip

    def __init__(
        self, node: str, index: int, meter: Meter, clock: Callable[[], float], recorder: Recorder | None, parent: int | None
    ) -> None:
        self.node = node
        self._meter, self.clock, self.recorder, self._parent = meter, clock, recorder, parent
        self._name = f"{node}/{index}"
        self._track = 0 if recorder is None else recorder.track(self._name, parent, rank=index)
        self._task: asyncio.Task[Any] | None = None
        self._free: list[int] = []
        self._stacks: dict[asyncio.Task[Any], list[int]] = {}
        self.open = True
        self.state: State = "input"
        self.since = clock()
        self.detail = ""
        self._in_slice = recorder is not None
        if recorder is not None:
            recorder.begin(self._track, _SLICES["input"], self._now())

    def own(self) -> None:
        """The calling task is this lane's worker from now on."""
        self._task = asyncio.current_task()

    def enter(self, state: State, detail: str = "", flows: Sequence[int] = (), args: Mapping[str, Any] | None = None) -> None:
        """Change the state. Entering the state it is in only changes the detail, unless it is work."""
        self.detail = detail
        if state == self.state and state != "work":
            return
        now = self.clock()
        self._meter.seconds[self.state] += now - self.since
        self.state, self.since = state, now
        if self.recorder is not None:
            at = int(now * 1e9)
            if self._in_slice:
                self.recorder.end(self._track, at)
            self._in_slice = True
            name = self.node if state == "work" else _SLICES[state]
            if args is None and state != "work" and detail:
                args = {"for": detail}
            self.recorder.begin(self._track, name, at, args, flows)

    def work(self, about: "Callable[[T], tuple[Sequence[int], Mapping[str, Any]]]", what: T) -> None:
        """Enter work; ``about(what)`` gives arrows and details of the slice, and is asked only where somebody records."""
        if self.recorder is not None:
            flows, args = about(what)
            self.enter("work", flows=flows, args=args)
        elif self.state != "work":
            self.enter("work")

    def begin_series(self, at: float) -> None:
        """Work on one item after another begins, of which ``end_series`` tells. Nothing is waited for in between."""
        if self.state != "work":
            self._meter.seconds[self.state] += at - self.since
            self.state, self.since = "work", at
        if self._in_slice:
            assert self.recorder is not None
            self.recorder.end(self._track, int(at * 1e9))
            self._in_slice = False

    def end_series(self, marks: "list[Any]", about: "Callable[[Any], tuple[Sequence[int], Mapping[str, Any]]]") -> None:
        """The slices since ``begin_series``: in turn a time and what ``about`` tells of, then the time the last ends at."""
        assert self.recorder is not None
        self.recorder.series(self._track, self.node, marks, about)

    def close(self) -> None:
        """The worker is gone. Harmless the second time."""
        if not self.open:
            return
        self.open = False
        now = self.clock()
        self._meter.seconds[self.state] += now - self.since
        self.since = now
        if self._in_slice and self.recorder is not None:
            self.recorder.end(self._track, int(now * 1e9))

    @contextmanager
    def span(self, name: str, args: Mapping[str, Any]) -> Generator[None]:
        """A slice inside the work of this lane."""
        recorder = self.recorder
        if recorder is None:
            yield
            return
        task = _current_task()
        track = self._open_track(task)
        recorder.begin(track, name, self._now(), args or None)
        try:
            yield
        finally:
            recorder.end(track, self._now())
            self._close_track(task, track)

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

    def _open_track(self, task: asyncio.Task[Any] | None) -> int:
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

    def _close_track(self, task: asyncio.Task[Any] | None, track: int) -> None:
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

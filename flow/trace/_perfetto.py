"""Writes a run's trace while it runs. Calls note an event; a thread of its own turns events into packets and appends them.

A file ends on a packet boundary after every write, so what a killed process leaves is a readable trace up to half a second
before its end. The writer never holds the program up and never grows with the run: when events come faster than they can be
written, whole slices are left out, counted, and the trace says so on its root track; when a file is large, the trace goes on in
another (``_parts``).

Thread-safe: appending to a deque and taking its head are single operations of the interpreter, and what is kept per track is
touched by one thread at a time because a track's calls come in order.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ._packets import BEGIN, COUNT, DECLARE, END, INSTANT, ROOT, SERIES, Event, PacketEncoder
from ._parts import Parts
from ._recorder import About, Argument

_PERIOD_S = 0.5
_CHUNK = 512
"""Events per write: encoding them takes about a millisecond, after which the write lets other threads in."""


class PerfettoWriter:
    """A ``Recorder`` that writes files for ui.perfetto.dev. Use it in a ``with``; it is recording from then on."""

    def __init__(
        self,
        path: Path | str,
        *,
        title: str = "run",
        max_bytes: int = 512_000_000,
        max_backlog: int = 250_000,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Nothing is opened yet.

        Args:
            path: the first file; one that exists is replaced. Those that follow are beside it: ``run.part1.pftrace`` and so on.
            title: name of the root track.
            max_bytes: of all files of the run together, give or take what one write adds. A file has a quarter of it, 128 MB at
                most; the oldest but the first is removed where there is no room for another.
            max_backlog: events that may wait to be written, at about 200 bytes each.
            clock: the clock of the events, in nanoseconds; the end of slices that are open at the close is taken from it.
        """
        self._parts = Parts(Path(path), max_bytes)
        self._title = title
        self._room = max_backlog
        self._clock = clock
        self._encoder = PacketEncoder()
        self._events: deque[Event] = deque()
        self._in_series = [0, 0]  # events of series noted, and written: a series is one entry of many events
        self._gaps: dict[int, float] = {}  # since when marks of a track were left out
        self._declared: dict[tuple[str, int | None, bool], int] = {}
        self._declaring = threading.Lock()
        # By track number; 0 is no track and 1 is the root.
        self._open = [0, 0]
        self._skipping = [0, 0]
        self._dropped = [0, 0]
        self._dropped_written = 0
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._write_for_ever, name="trace writer", daemon=True)

    def __enter__(self) -> "PerfettoWriter":
        """Open the file and start recording.

        Raises:
            OSError: the file cannot be written.
        """
        self._parts.open()
        try:
            self._begin_file()
        except OSError:
            self._parts.close()
            raise
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Close, and leave the error of the body on top of one of the writer."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except Exception as fault:
            error.add_note(f"The trace was not written to its end either: {fault}")

    def close(self) -> None:
        """End the open slices now, write what waits and close the file. A second call does nothing.

        Raises:
            OSError: writing failed, now or earlier. The file is complete up to that moment.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join()
        self._room = 0
        self._end_open_slices()
        self._parts.close()
        if self._fault is not None:
            raise self._fault

    @property
    def num_dropped(self) -> int:
        """Slices, instants and counts that were left out so far."""
        return sum(self._dropped)

    def track(self, name: str, parent: int | None = None, *, rank: int = 0) -> int:
        """See ``Recorder.track``."""
        return self._declare(name, parent, rank, None)

    def counter(self, name: str, unit: str = "", parent: int | None = None) -> int:
        """See ``Recorder.counter``."""
        return self._declare(name, parent, 0, unit)

    def begin(
        self, track: int, name: str, at_ns: int, args: Mapping[str, Argument] | None = None, flows: Sequence[int] = ()
    ) -> None:
        """See ``Recorder.begin``."""
        # Inside a slice that was left out everything is left out, so that each end still meets its own begin.
        if self._skipping[track] or len(self._events) >= self._room:
            self._skipping[track] += 1
            self._dropped[track] += 1
            return
        self._open[track] += 1
        self._events.append((BEGIN, track, name, at_ns, args, flows))

    def end(self, track: int, at_ns: int, args: Mapping[str, Argument] | None = None) -> None:
        """See ``Recorder.end``."""
        if self._skipping[track]:
            self._skipping[track] -= 1
            return
        assert self._open[track] > 0, f"no slice is open on track {track}"
        self._open[track] -= 1
        self._events.append((END, track, at_ns, args))

    def series(self, track: int, marks: Sequence[Any], about: About) -> None:
        """See ``Recorder.series``."""
        count = len(marks) // 2
        if len(self._events) + self._in_series[0] - self._in_series[1] + count > self._room:
            self._dropped[track] += count
            self._gaps.setdefault(track, marks[0])
            return
        if track in self._gaps:  # what is open in the file was over when the first mark was left out
            marks = [self._gaps.pop(track), None, *marks]
            count += 1
        self._in_series[0] += count
        self._events.append((SERIES, track, marks, about))

    def instant(
        self, track: int, name: str, at_ns: int, args: Mapping[str, Argument] | None = None, flows: Sequence[int] = ()
    ) -> None:
        """See ``Recorder.instant``."""
        if len(self._events) >= self._room:
            self._dropped[track] += 1
            return
        self._events.append((INSTANT, track, name, at_ns, args, flows))

    def count(self, track: int, value: float, at_ns: int) -> None:
        """See ``Recorder.count``."""
        if len(self._events) >= self._room:
            self._dropped[track] += 1
            return
        self._events.append((COUNT, track, value, at_ns))

    def flush(self) -> None:
        """Write everything recorded so far. Blocks for a few microseconds per event."""
        with self._writing:
            self._report_dropped()
            waiting = len(self._events)
            while waiting > 0 and self._fault is None:
                chunk, size = list[Event](), 0
                while waiting > 0 and size < _CHUNK:
                    event = self._events.popleft()
                    size += len(event[2]) // 2 if event[0] == SERIES else 1
                    waiting -= 1
                    chunk.append(event)
                self._write(chunk)

    def _declare(self, name: str, parent: int | None, rank: int, unit: str | None) -> int:
        with self._declaring:
            key = (name, parent, unit is None)
            known = self._declared.get(key)
            if known is not None:
                return known
            for column in (self._open, self._skipping, self._dropped):
                column.append(0)
            self._declared[key] = track = len(self._open) - 1
            self._events.append((DECLARE, track, name, parent, rank, unit))
            return track

    def _write_for_ever(self) -> None:
        while not self._closing.wait(_PERIOD_S):
            self.flush()

    def _write(self, chunk: list[Event]) -> None:
        try:
            self._parts.write(self._encoder.encode(chunk))
            if self._parts.full:
                self._parts.turn()
                self._begin_file()
        except Exception as fault:  # kept for the caller of close: a thread has nobody to raise to
            self._fault = fault
            self._room = 0
            self._events.clear()
            return
        self._in_series[1] += sum(len(event[2]) // 2 for event in chunk if event[0] == SERIES)

    def _begin_file(self) -> None:
        self._parts.write(self._encoder.head(self._title, self._clock(), time.time_ns()))

    def _report_dropped(self) -> None:
        dropped = self.num_dropped
        if dropped > self._dropped_written and self._fault is None:
            self._events.append((INSTANT, ROOT, "left out of the trace", self._clock(), {"events": dropped}, ()))
            self._dropped_written = dropped

    def _end_open_slices(self) -> None:
        self.flush()  # so that it is known what is open
        for track, depth in enumerate(self._open):
            # A straggler may still end what it began: that end is left out too.
            self._skipping[track] += depth
            self._open[track] = 0
        if self._fault is None:
            try:
                self._parts.write(self._encoder.last(self._clock()))
            except OSError as fault:
                self._fault = fault

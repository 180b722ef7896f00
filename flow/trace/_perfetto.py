"""Writes a run's trace while it runs. Calls note an event; a thread of its own turns events into packets and appends them.

The file ends on a packet boundary after every write, so what a killed process leaves is a readable trace up to half a second
before its end. The writer never holds the program up and never grows with the run: when events come faster than they can be
written, or the file reaches its limit, whole slices are left out, counted, and the trace says so on its root track.

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
from ._recorder import About, Argument

_PERIOD_S = 0.5
_CHUNK = 256
"""Events per write: encoding them takes about a millisecond, after which the write lets other threads in."""


class PerfettoWriter:
    """A ``Recorder`` that writes one file for ui.perfetto.dev. Use it in a ``with``; it is recording from then on."""

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
            path: the file; one that exists is replaced.
            title: name of the root track.
            max_bytes: size at which no further slice is begun. The viewer refuses files over about a gigabyte.
            max_backlog: events that may wait to be written, at about 200 bytes each.
            clock: the clock of the events, in nanoseconds; the end of slices that are open at the close is taken from it.
        """
        self._path = Path(path)
        self._title = title
        self._max_bytes = max_bytes
        self._room = max_backlog
        self._clock = clock
        self._encoder = PacketEncoder()
        self._events: deque[Event] = deque()
        self._in_series = [0, 0]  # events of series noted, and written: a series is one entry of many events
        self._series_open: set[int] = set()  # tracks whose last mark opened a slice
        self._gaps: dict[int, float] = {}  # since when marks of a track were left out
        self._declared: dict[tuple[str, int | None, bool], int] = {}
        self._declaring = threading.Lock()
        # By track number; 0 is no track and 1 is the root.
        self._open = [0, 0]
        self._skipping = [0, 0]
        self._latest_ns = [0, 0]
        self._dropped = [0, 0]
        self._dropped_written = 0
        self._size_bytes = 0
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._write_for_ever, name="trace writer", daemon=True)

    def __enter__(self) -> "PerfettoWriter":
        """Open the file and start recording.

        Raises:
            OSError: the file cannot be written.
        """
        self._file = self._path.open("wb", buffering=0)
        try:
            self._append(self._encoder.header(self._title, self._clock(), time.time_ns()))
        except OSError:
            self._file.close()
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
        self._file.close()
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

    def end(self, track: int, at_ns: int) -> None:
        """See ``Recorder.end``."""
        if self._skipping[track]:
            self._skipping[track] -= 1
            return
        assert self._open[track] > 0, f"no slice is open on track {track}"
        self._open[track] -= 1
        self._events.append((END, track, at_ns))

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
        was, is_open = track in self._series_open, marks[-1] is not None
        self._open[track] += is_open - was
        (self._series_open.add if is_open else self._series_open.discard)(track)
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
                    size += len(event[2]) // 4 if event[0] == SERIES else 1  # written by hand, so at a fraction of the cost
                    waiting -= 1
                    chunk.append(event)
                self._write(chunk)

    def _declare(self, name: str, parent: int | None, rank: int, unit: str | None) -> int:
        with self._declaring:
            key = (name, parent, unit is None)
            known = self._declared.get(key)
            if known is not None:
                return known
            for column in (self._open, self._skipping, self._latest_ns, self._dropped):
                column.append(0)
            self._declared[key] = track = len(self._open) - 1
            self._events.append((DECLARE, track, name, parent, rank, unit))
            return track

    def _write_for_ever(self) -> None:
        while not self._closing.wait(_PERIOD_S):
            self.flush()

    def _write(self, chunk: list[Event]) -> None:
        try:
            self._append(self._encoder.encode(chunk))
        except Exception as fault:  # kept for the caller of close: a thread has nobody to raise to
            self._fault = fault
            self._room = 0
            self._events.clear()
            return
        for event in chunk:
            if event[0] == BEGIN:
                self._latest_ns[event[1]] = event[3]
            elif event[0] == END:
                self._latest_ns[event[1]] = event[2]
            elif event[0] == SERIES:
                self._latest_ns[event[1]] = int(event[2][-2] * 1e9)
                self._in_series[1] += len(event[2]) // 2
        if self._size_bytes >= self._max_bytes:
            self._room = 0

    def _append(self, packets: bytes) -> None:
        rest = memoryview(packets)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size_bytes += len(packets)

    def _report_dropped(self) -> None:
        if self._room == 0 and not self._closing.is_set():
            return  # the limit is reached for good: once, at the end, is enough
        dropped = self.num_dropped
        if dropped > self._dropped_written:
            self._events.append((INSTANT, ROOT, "left out of the trace", self._clock(), {"events": dropped}, ()))
            self._dropped_written = dropped

    def _end_open_slices(self) -> None:
        self.flush()  # so that the latest times are known
        now_ns = self._clock()
        for track, depth in enumerate(self._open):
            at_ns = max(now_ns, self._latest_ns[track])
            for _ in range(depth):
                self._events.append((END, track, at_ns))
            # A straggler may still end what it began: that end is left out too.
            self._skipping[track] += depth
            self._open[track] = 0
        self.flush()

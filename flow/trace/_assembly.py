"""Reads the files of a trace that ``PerfettoWriter`` wrote, also one cut off by a kill. What comes of it is in ``_reader``.

Events are read by hand, by the one layout that ``_wire`` gives them: a message object for each would take a minute for a
million slices. Everything else (declarations, names, clocks) goes through Perfetto's own message classes. It knows one packet
sequence and the packets of the writer; it is no reader for traces from elsewhere.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Literal, NamedTuple

import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as pb
from google.protobuf.message import DecodeError

from ._details import details_of, varint_at
from ._reader import OPEN, Details, Gap, Instant, Spans, Trace, TraceError, Track, Values
from ._wire import BEGIN, COUNT, END

_PACKET, _TIME, _NAME_IID, _ARGS = 0x0A, 0x40, 0x50, 0x22
_CLEARED = 1
_MIX, _IDS = 0x9E3779B97F4A7C15, 2**64
"""Item numbers begin anew with each start; odd, so that no two starts share the ids of their arrows."""
_HEAD = Struct("<B4HB5s").unpack_from
"""Time (a tag and nine bytes), sequence, flags, and the tag of the event."""
_FIXED = b"\x50\x01\x68\x02\x5a"
_LEAST_BYTES = 20
_UNKNOWN = (0, 0, 0, 0, 0, 0, b"")
_VALUE = Struct("<d").unpack_from
_LENGTH_BITS = 16
_LENGTH = (1 << _LENGTH_BITS) - 1
_MOST_SHARED = 65_536
_NEVER = 2**63


class _File:
    """A file as it is read, and afterwards as that in which details are looked up.

    Attributes:
        path: where it is.
        content: what is in it.
        base: bytes of the files before it.
        attempt: the start of the run that wrote it.
        mix: what arrows are moved by.
        names: of events, by interned number.
        arg_names: of arguments, in the same way.
        began_ns: when it was begun.
        first_ns: of what happened while it was written, the first that ended; what it says again at its head began before.
        later_ns: what times are moved by.
        numbers: of tracks, by those in the file.
        shared: details that many slices have, by their bytes.
    """

    def __init__(self, path: Path, base: int, attempt: int) -> None:
        self.path, self.content, self.base, self.attempt = path, path.read_bytes(), base, attempt
        self.began_ns, self.first_ns = 0, _NEVER
        self.mix = attempt * _MIX % _IDS
        self.names: dict[int, str] = {}
        self.arg_names: dict[int, str] = {}
        self.later_ns = 0
        self.numbers: dict[int, int] = {}
        self.shared: dict[bytes, Details] = {}

    def fault(self, what: str) -> TraceError:
        """It breaks the rules of its own format."""
        return TraceError(f"{what}, in {self.path}; the file is damaged or was not written by PerfettoWriter")


class _Row(NamedTuple):
    """Where the slices of a track go."""

    spans: Spans
    open: list[int]
    """Places of its open slices, outermost first."""
    before: list[int]
    """The same at the end of the file before: those that go on are begun again at the head of this one."""


class Assembly:
    """Files so far, as columns. Slices wait for their end with a place kept in order."""

    def __init__(self) -> None:
        self._tracks: dict[int, Track] = {}
        self._known: dict[tuple[object, ...], int] = {}
        self._rows: dict[int, _Row] = {}
        self._counters: dict[int, Values] = {}
        self._instants: list[Instant] = []
        self._files: list[_File] = []
        self._end = 0  # bytes of all files
        self._far: list[tuple[int, int]] = []  # places of details that are very long
        self._ended_with: dict[int, int] = {}  # place of the details at a slice's end, by that of those at its begin
        self._wall_offset_ns: int | None = None
        self._gaps: list[Gap] = []
        self._torn_bytes = 0
        self._attempt = -1
        self._later_ns: dict[int, int] = {}  # what times are moved by, by start of the run
        self._latest_ns = self._before_ns = 0

    def read(self, path: Path, attempt: int, missing: Sequence[str] = ()) -> None:
        """Read the next file.

        Args:
            path: the file.
            attempt: the start of the run that wrote it.
            missing: names of the files that were between the one before and this, and are gone.

        Raises:
            OSError: the file cannot be read.
            TraceError: it holds no packet, uses a track before its declaration, or ends a slice that is not open.
        """
        file = _File(path, self._end, attempt)
        again = attempt != self._attempt and bool(self._files)
        self._turn(attempt)
        self._files.append(file)
        used = self._scan(file)
        if not used:
            raise TraceError(
                f"expected a Perfetto trace, got {len(file.content)} bytes without one whole packet, in {path}; "
                "give the run.pftrace file of a run"
            )
        if missing:
            self._leave_gap(file.began_ns if file.first_ns == _NEVER else file.first_ns, missing)
        elif again:
            self._leave_gap(file.began_ns, ())
        self._torn_bytes += len(file.content) - used
        self._end += len(file.content)

    def trace(self) -> Trace:
        """All that was read."""
        self._end_lost()
        spans = {number: row.spans for number, row in self._rows.items()}
        offset_ns = self._wall_offset_ns or 0
        gaps = tuple(self._gaps)
        return Trace(self._tracks, spans, self._counters, tuple(self._instants), offset_ns, self._torn_bytes, gaps)

    # --- from one file to the next ---

    def _turn(self, attempt: int) -> None:
        """What was open goes on where this file is of the same start, and is over where it is not."""
        self._end_lost()
        for row in self._rows.values():
            row.before.extend(row.open)
            row.open.clear()
        self._before_ns = self._latest_ns
        if attempt != self._attempt:
            self._end_lost()
        self._attempt = attempt

    def _end_lost(self) -> None:
        """What was open at the end of a file and did not go on has ended unseen: it was open until then, that much is known."""
        for row in self._rows.values():
            for index in row.before:
                row.spans.ends_ns[index] = self._before_ns
            row.before.clear()

    # --- packets ---

    def _scan(self, file: _File) -> int:
        """Read whole packets; gives the bytes they take. One long loop, since a call for each event would double its time."""
        content, base, names, low = file.content, file.base, file.names, _low_bits()
        rows: dict[int, _Row] = {}
        size, at, latest_ns, first_ns = len(content), 0, self._latest_ns, _NEVER
        while at < size and content[at] == _PACKET:
            try:
                length, body = varint_at(content, at + 1)
            except IndexError:
                break
            stop = body + length
            if stop > size:
                break
            known = length >= _LEAST_BYTES and content[body] == _TIME
            _, a, b, c, d, e, fixed = _HEAD(content, body) if known else _UNKNOWN
            if fixed != _FIXED:
                try:
                    self._other(file, pb.TracePacket.FromString(content[body:stop]), rows)
                except DecodeError:
                    break
                at = stop
                continue
            at, at_ns = stop, file.later_ns + (low[a] | low[b] << 14 | low[c] << 28 | low[d] << 42 | e << 56)
            place = body + 16 if content[body + 15] < 128 else varint_at(content, body + 15)[1]
            kind, track, place = content[place + 1], content[place + 3], place + 4
            if track >= 128:
                track, place = varint_at(content, place - 1)
            if at_ns > latest_ns:
                latest_ns = at_ns
            row = rows.get(track)
            if row is None or kind > END:
                self._told(file, kind, track, at_ns, place, stop)
            elif kind == BEGIN:
                if content[place] != _NAME_IID or content[place + 1] >= 128:
                    name, place = self._name(file, place)
                else:
                    name, place = names[content[place + 1]], place + 2
                spans, stack, before = row
                if before and spans.starts_ns[before[0]] == at_ns and spans.names[before[0]] == name:
                    stack.append(before.pop(0))
                    continue
                spans.depths.append(len(stack))
                stack.append(len(spans.names))
                spans.names.append(name)
                spans.starts_ns.append(at_ns)
                spans.ends_ns.append(OPEN)
                short = stop - place < _LENGTH
                spans.places.append((base + place) << _LENGTH_BITS | stop - place if short else self._place(file, place, stop))
            else:
                if not row.open:
                    name = self._tracks[row.spans.track].name
                    raise file.fault(f"expected an open slice, got an end on {name!r} at {at_ns} ns")
                index = row.open.pop()
                row.spans.ends_ns[index] = at_ns
                if at_ns < first_ns:
                    first_ns = at_ns
                if place < stop:
                    self._ended_with[row.spans.places[index]] = self._place(file, place, stop)
        self._latest_ns, file.first_ns = latest_ns, first_ns
        return at

    def _told(self, file: _File, kind: int, track: int, at_ns: int, place: int, stop: int) -> None:
        """An instant or a count."""
        number = file.numbers.get(track)
        if number is None:
            raise file.fault(f"expected a declared track, got an event on track {track} at {at_ns} ns")
        if kind == COUNT:
            values = self._counters[number]
            (value,) = _VALUE(file.content, place + 2)
            again = len(values) and (at_ns, value) == (values.at_ns[-1], values.values[-1])  # at the head of a file
            if not again:
                values.at_ns.append(at_ns)
                values.values.append(value)
        else:
            name, place = self._name(file, place)
            args, flows = self._read_details(file, place, stop)
            self._instants.append(Instant(number, name, at_ns, args, flows))

    def _name(self, file: _File, place: int) -> tuple[str, int]:
        """The name of an event, by number or in full, and where it ends."""
        tag, place = varint_at(file.content, place)
        number, place = varint_at(file.content, place)
        if tag == _NAME_IID:
            return file.names[number], place
        return file.content[place : place + number].decode(), place + number

    def _other(self, file: _File, packet: pb.TracePacket, rows: dict[int, _Row]) -> None:
        """A packet that is no event."""
        if packet.sequence_flags & _CLEARED:
            file.names.clear()
            file.arg_names.clear()
        if packet.HasField("interned_data"):
            file.names.update((entry.iid, entry.name) for entry in packet.interned_data.event_names)
            file.arg_names.update((entry.iid, entry.name) for entry in packet.interned_data.debug_annotation_names)
        if packet.HasField("clock_snapshot"):
            times = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
            self._tie(file, times[pb.BUILTIN_CLOCK_REALTIME] - times[pb.BUILTIN_CLOCK_MONOTONIC])
            file.began_ns = times[pb.BUILTIN_CLOCK_MONOTONIC] + file.later_ns
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            number = file.numbers[descriptor.uuid] = self._declared(file, descriptor)
            if number in self._rows:
                rows[descriptor.uuid] = self._rows[number]

    def _tie(self, file: _File, wall_offset_ns: int) -> None:
        """Times of this start of the run are moved to the clock of the first. Its later files have the same clock."""
        if self._wall_offset_ns is None:
            self._wall_offset_ns = wall_offset_ns
        if file.attempt not in self._later_ns:
            self._later_ns[file.attempt] = wall_offset_ns - self._wall_offset_ns
        file.later_ns = self._later_ns[file.attempt]

    def _leave_gap(self, end_ns: int, missing: Sequence[str]) -> None:
        self._gaps.append(Gap(min(self._before_ns or end_ns, end_ns), end_ns, tuple(missing)))

    def _declared(self, file: _File, descriptor: pb.TrackDescriptor) -> int:
        """The number of a track among those of all files."""
        parent = file.numbers[descriptor.parent_uuid] if descriptor.HasField("parent_uuid") else None
        kind: Literal["slices", "counter"] = "counter" if descriptor.HasField("counter") else "slices"
        key = (descriptor.name, parent, kind)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = descriptor.uuid if descriptor.uuid not in self._tracks else max(self._tracks) + 1
            unit, rank = descriptor.counter.unit_name, descriptor.sibling_order_rank
            self._tracks[number] = Track(number, descriptor.name, parent, kind, unit, rank)
            if kind == "counter":
                self._counters[number] = Values()
            else:
                self._rows[number] = _Row(Spans(number, self._details), [], [])
        return number

    # --- details, when they are asked for ---

    def _place(self, file: _File, place: int, stop: int) -> int:
        """Where details are, as a number."""
        length = stop - place
        if length < _LENGTH:
            return (file.base + place) << _LENGTH_BITS | length
        self._far.append((file.base + place, length))
        return -len(self._far)

    def _details(self, place: int) -> Details:
        details = self._at(place)
        ended_with = self._ended_with.get(place)
        if ended_with is None:
            return details
        return details[0] | self._at(ended_with)[0], details[1]

    def _at(self, place: int) -> Details:
        where, length = (place >> _LENGTH_BITS, place & _LENGTH) if place >= 0 else self._far[-place - 1]
        file = self._files[bisect_right(self._files, where, key=_base) - 1]
        return self._read_details(file, where - file.base, where - file.base + length)

    def _read_details(self, file: _File, place: int, stop: int) -> Details:
        if place == stop:
            return {}, ()
        if file.content[place] != _ARGS:  # it begins with an arrow: of an item, so it is like no other
            args, flows = details_of(file.content, place, stop, file.arg_names)
            return args, tuple((flow + file.mix) % _IDS for flow in flows) if file.mix else flows
        content = file.content[place:stop]
        details = file.shared.get(content)
        if details is None:
            details = details_of(content, 0, len(content), file.arg_names)
            if len(file.shared) < _MOST_SHARED:
                file.shared[content] = details
        return details


def _base(file: _File) -> int:
    return file.base


@cache
def _low_bits() -> list[int]:
    """The 14 bits that each two bytes of a varint carry."""
    return [(pair & 127) | (pair >> 8 & 127) << 7 for pair in range(1 << 16)]

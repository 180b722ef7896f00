"""Reads a file that ``PerfettoWriter`` wrote, also one cut off by a kill. For tests and for saying what limited a run.

It knows one packet sequence and the packets of the writer; it is no reader for traces from elsewhere.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as pb
from google.protobuf.message import DecodeError

from ._recorder import Argument

_PACKET_TAG = 0x0A
_CLEARED = 1


class TraceError(ValueError):
    """The file is no trace, or one that breaks its own rules."""


class Track(msgspec.Struct, frozen=True):
    """A row of the viewer."""

    number: int
    name: str
    parent: int | None
    """``None`` for the root."""
    kind: Literal["slices", "counter"]
    unit: str = ""
    rank: int = 0


class Slice(msgspec.Struct, frozen=True):
    """Something that took time."""

    track: int
    name: str
    start_ns: int
    end_ns: int | None
    """``None`` where the trace ends before the slice does."""
    depth: int
    """Slices of the same track it lies in."""
    args: dict[str, Argument] = {}
    flows: tuple[int, ...] = ()


class Instant(msgspec.Struct, frozen=True):
    """Something that happened."""

    track: int
    name: str
    at_ns: int
    args: dict[str, Argument] = {}
    flows: tuple[int, ...] = ()


class Count(msgspec.Struct, frozen=True):
    """A counter's value from a time on."""

    track: int
    at_ns: int
    value: float


class Trace(msgspec.Struct, frozen=True):
    """A whole trace, in the order of the file."""

    tracks: dict[int, Track]
    slices: tuple[Slice, ...]
    """By the time they were begun, within each track."""
    instants: tuple[Instant, ...]
    counts: tuple[Count, ...]
    wall_offset_ns: int
    """Add it to a time of the trace to get nanoseconds since the epoch."""
    torn_bytes: int
    """Bytes at the end that are no whole packet: above 0 where the writer was killed while it wrote."""


def read_file(path: Path) -> Trace:
    """The trace in a file. An incomplete last packet is left out and counted.

    Args:
        path: a file of ``PerfettoWriter``.

    Raises:
        OSError: the file cannot be read.
        TraceError: it holds no packet, uses a track before its declaration, or ends a slice that is not open.
    """
    content = path.read_bytes()
    packets, used = _split(content)
    if not packets:
        raise TraceError(
            f"expected a Perfetto trace, got {len(content)} bytes without one whole packet, in {path}; "
            "give the run.pftrace file of a run"
        )
    assembly = _Assembly(str(path))
    for packet in packets:
        assembly.add(packet)
    return assembly.trace(torn_bytes=len(content) - used)


def _split(content: bytes) -> tuple[list[pb.TracePacket], int]:
    """Whole packets at the head, and the number of bytes they take."""
    packets: list[pb.TracePacket] = []
    used = 0
    for start, stop in _bounds(content):
        try:
            packets.append(pb.TracePacket.FromString(content[start:stop]))
        except DecodeError:
            break
        used = stop
    return packets, used


def _bounds(content: bytes) -> Iterator[tuple[int, int]]:
    """Where each packet's bytes lie: a trace is a run of fields ``tag, length, packet``."""
    at = 0
    while at < len(content) and content[at] == _PACKET_TAG:
        length = shift = 0
        at += 1
        while at < len(content) and content[at] & 0x80:
            length |= (content[at] & 0x7F) << shift
            shift += 7
            at += 1
        if at >= len(content):
            return
        length |= content[at] << shift
        at += 1
        if at + length > len(content):
            return
        yield at, at + length
        at += length


class _Assembly:
    """Packets so far, as records. Slices wait for their end with a place kept in order."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tracks: dict[int, Track] = {}
        self._slices: list[Slice] = []
        self._open: dict[int, list[int]] = {}
        self._instants: list[Instant] = []
        self._counts: list[Count] = []
        self._event_names: dict[int, str] = {}
        self._arg_names: dict[int, str] = {}
        self._wall_offset_ns = 0

    def add(self, packet: pb.TracePacket) -> None:
        if packet.sequence_flags & _CLEARED:
            self._event_names.clear()
            self._arg_names.clear()
        if packet.HasField("interned_data"):
            self._event_names.update((entry.iid, entry.name) for entry in packet.interned_data.event_names)
            self._arg_names.update((entry.iid, entry.name) for entry in packet.interned_data.debug_annotation_names)
        if packet.HasField("track_event"):
            self._event(packet.timestamp, packet.track_event)
        elif packet.HasField("track_descriptor"):
            self._declare(packet.track_descriptor)
        elif packet.HasField("clock_snapshot"):
            times = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
            self._wall_offset_ns = times[pb.BUILTIN_CLOCK_REALTIME] - times[pb.BUILTIN_CLOCK_MONOTONIC]

    def trace(self, torn_bytes: int) -> Trace:
        return Trace(
            tracks=self._tracks,
            slices=tuple(self._slices),
            instants=tuple(self._instants),
            counts=tuple(self._counts),
            wall_offset_ns=self._wall_offset_ns,
            torn_bytes=torn_bytes,
        )

    def _declare(self, descriptor: pb.TrackDescriptor) -> None:
        self._tracks[descriptor.uuid] = Track(
            number=descriptor.uuid,
            name=descriptor.name,
            parent=descriptor.parent_uuid if descriptor.HasField("parent_uuid") else None,
            kind="counter" if descriptor.HasField("counter") else "slices",
            unit=descriptor.counter.unit_name,
            rank=descriptor.sibling_order_rank,
        )

    def _event(self, at_ns: int, event: pb.TrackEvent) -> None:
        track = event.track_uuid
        if track not in self._tracks:
            raise self._broken(f"expected a declared track, got an event on track {track} at {at_ns} ns")
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            stack = self._open.setdefault(track, [])
            stack.append(len(self._slices))
            args = self._args(event)
            self._slices.append(Slice(track, self._name(event), at_ns, None, len(stack) - 1, args, tuple(event.flow_ids)))
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            if not self._open.get(track):
                raise self._broken(f"expected an open slice, got an end on {self._tracks[track].name!r} at {at_ns} ns")
            place = self._open[track].pop()
            self._slices[place] = msgspec.structs.replace(self._slices[place], end_ns=at_ns)
        elif event.type == pb.TrackEvent.TYPE_INSTANT:
            self._instants.append(Instant(track, self._name(event), at_ns, self._args(event), tuple(event.flow_ids)))
        elif event.type == pb.TrackEvent.TYPE_COUNTER:
            self._counts.append(Count(track, at_ns, event.double_counter_value))

    def _name(self, event: pb.TrackEvent) -> str:
        return self._event_names[event.name_iid] if event.HasField("name_iid") else event.name

    def _args(self, event: pb.TrackEvent) -> dict[str, Argument]:
        return {
            self._arg_names[note.name_iid] if note.HasField("name_iid") else note.name: _value(note)
            for note in event.debug_annotations
        }

    def _broken(self, what: str) -> TraceError:
        return TraceError(f"{what}, in {self._path}; the file is damaged or was not written by PerfettoWriter")


def _value(note: pb.DebugAnnotation) -> Argument:
    for field in ("string_value", "int_value", "double_value", "bool_value"):
        if note.HasField(field):
            return getattr(note, field)
    return ""

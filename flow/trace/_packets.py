"""Events into Perfetto packets. Bytes out, no file, no thread, no clock; one encoder per file, called by one thread at a time.

A file is one packet sequence. Names are interned: a packet carries the text of a name the first time and its number after
that, which is the sequence's incremental state. The table of names is bounded, because a name made per item would otherwise
grow it with the run; names beyond the bound are written out each time.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as pb

from ._recorder import About, Argument
from ._wire import SliceWire, time_of

if TYPE_CHECKING:
    _Packet: TypeAlias = pb.TracePacket

DECLARE: Literal[0] = 0
BEGIN: Literal[1] = 1
END: Literal[2] = 2
INSTANT: Literal[3] = 3
COUNT: Literal[4] = 4
SERIES: Literal[5] = 5

Declared: TypeAlias = tuple[Literal[0], int, str, int | None, int, str | None]
"""(DECLARE, track, name, parent, rank, unit); the unit is ``None`` for a track of slices."""
Begun: TypeAlias = tuple[Literal[1], int, str, int, Mapping[str, Argument] | None, Sequence[int]]
Ended: TypeAlias = tuple[Literal[2], int, int]
Happened: TypeAlias = tuple[Literal[3], int, str, int, Mapping[str, Argument] | None, Sequence[int]]
Counted: TypeAlias = tuple[Literal[4], int, float, int]
Followed: TypeAlias = tuple[Literal[5], int, Sequence[Any], About]
"""(SERIES, track, marks, about), as ``Recorder.series`` has them."""
Event: TypeAlias = Declared | Begun | Ended | Happened | Counted | Followed

ROOT = 1
"""The track under which all others are shown, because only siblings under a parent can be put in order."""

_SEQUENCE = 1
_CLEARED, _NEEDED = 1, 2
_REALTIME, _MONOTONIC = pb.BUILTIN_CLOCK_REALTIME, pb.BUILTIN_CLOCK_MONOTONIC
_EXPLICIT_ORDER = pb.TrackDescriptor.ChildTracksOrdering.EXPLICIT
_NEVER_MERGE = pb.TrackDescriptor.SiblingMergeBehavior.SIBLING_MERGE_BEHAVIOR_NONE
_MOST_NAMES = 4096
_INT64 = range(-(2**63), 2**63)


class PacketEncoder:
    """Packets of one file, in order."""

    def __init__(self) -> None:
        """Interning tables are empty, as at the head of a file."""
        self._event_names: dict[str, int] = {}
        self._arg_names: dict[str, int] = {}
        self._wires: dict[int, SliceWire] = {}
        self._fixed: dict[tuple[int, str], tuple[bytes, bytes]] = {}  # packets that differ in their time only
        self._in_series: set[int] = set()  # tracks whose last mark opened a slice

    def header(self, title: str, at_ns: int, wall_ns: int) -> bytes:
        """The first packets: what the numbers mean.

        Args:
            title: name of the root track.
            at_ns: now, on the clock of the events.
            wall_ns: now, since the epoch: the one place where the two clocks meet.
        """
        trace = pb.Trace()
        first = trace.packet.add()
        first.trusted_packet_sequence_id = _SEQUENCE
        first.sequence_flags = _CLEARED
        first.first_packet_on_sequence = True
        first.trace_packet_defaults.timestamp_clock_id = _MONOTONIC
        snapshot = self._packet(trace).clock_snapshot
        snapshot.primary_trace_clock = _MONOTONIC
        snapshot.clocks.add(clock_id=_MONOTONIC, timestamp=at_ns)
        snapshot.clocks.add(clock_id=_REALTIME, timestamp=wall_ns)
        root = self._packet(trace).track_descriptor
        root.uuid, root.name, root.child_ordering = ROOT, _text(title), _EXPLICIT_ORDER
        return trace.SerializeToString()

    def encode(self, events: Sequence[Event]) -> bytes:
        """Packets of these events, whole ones only."""
        done: list[bytes] = []
        trace = pb.Trace()
        for event in events:
            if event[0] == SERIES:
                done.append(trace.SerializeToString())
                trace = pb.Trace()
                done.append(self._series(event))
                continue
            packet = self._packet(trace)
            match event[0]:
                case 1 | 3:
                    self._named(packet, event)
                case 2:
                    _end(packet, event)
                case 4:
                    _count(packet, event)
                case 0:
                    _declare(packet, event)
        done.append(trace.SerializeToString())
        return b"".join(done)

    def _series(self, event: Followed) -> bytes:
        _, track, marks, about = event
        packets: list[bytes] = []
        for index in range(0, len(marks), 2):
            at_ns = int(marks[index] * 1e9)
            at, what = time_of(at_ns), marks[index + 1]
            if track in self._in_series:
                packets.append(self._wire(track).end(at))
            if what is None:
                self._in_series.discard(track)
                continue
            self._in_series.add(track)
            fixed = self._fixed.get((track, what)) if what.__class__ is str else None
            if fixed is not None:
                packets.append(fixed[0] + at + fixed[1])
                continue
            name, flows, args = about(what)
            number = self._event_names.get(name)
            if number is not None and self._arg_names.keys() >= args.keys():
                packet = self._wire(track).begin(at, number, args, flows)
                packets.append(packet)
                if what.__class__ is str:
                    self._fixed[track, what] = packet[: packet.index(at)], packet[packet.index(at) + len(at) :]
            else:  # introduces a name, or one of too many to be interned
                packets.append(self.encode([(BEGIN, track, name, at_ns, args, flows)]))
        return b"".join(packets)

    def _wire(self, track: int) -> SliceWire:
        wire = self._wires.get(track)
        if wire is None:
            wire = self._wires[track] = SliceWire(_SEQUENCE, _NEEDED, track, self._arg_names)
        return wire

    def _packet(self, trace: pb.Trace) -> "_Packet":
        packet = trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _NEEDED
        return packet

    def _named(self, packet: "_Packet", event: Begun | Happened) -> None:
        kind, track, name, at_ns, args, flows = event
        packet.timestamp = at_ns
        slot = packet.track_event
        slot.type = kind  # pyright: ignore[reportAttributeAccessIssue]  (the numbers are Perfetto's own)
        slot.track_uuid = track
        number = self._event_names.get(name)
        if number is not None:
            slot.name_iid = number
        elif len(self._event_names) < _MOST_NAMES:
            slot.name_iid = number = self._event_names[name] = len(self._event_names) + 1
            packet.interned_data.event_names.add(iid=number, name=_text(name))
        else:
            slot.name = _text(name)
        if flows:
            slot.flow_ids.extend(flows)
        if args:
            for key, value in args.items():
                self._argument(packet, key, value)

    def _argument(self, packet: "_Packet", key: str, value: Argument) -> None:
        note = packet.track_event.debug_annotations.add()
        number = self._arg_names.get(key)
        if number is not None:
            note.name_iid = number
        elif len(self._arg_names) < _MOST_NAMES:
            note.name_iid = number = self._arg_names[key] = len(self._arg_names) + 1
            packet.interned_data.debug_annotation_names.add(iid=number, name=_text(key))
        else:
            note.name = _text(key)
        if isinstance(value, bool):
            note.bool_value = value
        elif isinstance(value, int) and value in _INT64:
            note.int_value = value
        elif isinstance(value, float):
            note.double_value = value
        else:
            note.string_value = _text(str(value))


def _end(packet: "_Packet", event: Ended) -> None:
    _, track, at_ns = event
    packet.timestamp = at_ns
    packet.track_event.type = pb.TrackEvent.TYPE_SLICE_END
    packet.track_event.track_uuid = track


def _count(packet: "_Packet", event: Counted) -> None:
    _, track, value, at_ns = event
    packet.timestamp = at_ns
    packet.track_event.type = pb.TrackEvent.TYPE_COUNTER
    packet.track_event.track_uuid = track
    packet.track_event.double_counter_value = value


def _declare(packet: "_Packet", event: Declared) -> None:
    _, track, name, parent, rank, unit = event
    descriptor = packet.track_descriptor
    descriptor.uuid, descriptor.name = track, _text(name)
    descriptor.parent_uuid = ROOT if parent is None else parent
    descriptor.sibling_order_rank = rank
    descriptor.child_ordering = _EXPLICIT_ORDER
    descriptor.sibling_merge_behavior = _NEVER_MERGE
    if unit is not None:
        descriptor.counter.unit_name = _text(unit)


def _text(value: str) -> str:
    """What protobuf accepts: lone surrogates, which have no UTF-8, become escapes."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()

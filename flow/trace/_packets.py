"""Events into Perfetto packets. Bytes out, no file, no thread, no clock; one encoder per trace, called by one thread at a time.

A file is one packet sequence. Names are interned: a packet of their own carries them the first time, and events give their
number, which is the sequence's incremental state. The table of names is bounded, because a name made per item would otherwise
grow it with the run; names beyond the bound are written out each time.

A trace may be cut into several files (``head``), each of which can be read alone: the encoder knows what was declared, what is
open and what each counter stands at, and says all that again.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as pb

from . import _wire
from ._recorder import CLOSES, About, Argument, Happens, Opens
from ._wire import TrackWire, number_of, text_of, time_of

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
Ended: TypeAlias = tuple[Literal[2], int, int, Mapping[str, Argument] | None]
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


class PacketEncoder:
    """Packets of one trace, in order."""

    def __init__(self) -> None:
        """Interning tables are empty, as at the head of a file."""
        self._event_names: dict[str, int] = {}
        self._arg_names: dict[str, int] = {}
        self._wires: dict[int, TrackWire] = {}
        self._fixed: dict[tuple[int, str], tuple[bytes, bytes]] = {}  # packets that differ in their time only
        # What a file that goes on has to say again.
        self._declared: list[Declared] = []
        self._running: dict[int, tuple[int, Any, About]] = {}  # the open slice of each series
        self._open: dict[int, list[Begun]] = {}  # slices from ``begin``, which lie in those
        self._stands: dict[int, Counted] = {}
        self._latest_ns: dict[int, int] = {}

    def head(self, title: str, at_ns: int, wall_ns: int) -> bytes:
        """The first packets of a file: what the numbers mean, and where it goes on what stands.

        Args:
            title: name of the root track.
            at_ns: now, on the clock of the events.
            wall_ns: now, since the epoch: the one place where the two clocks meet.
        """
        for table in (self._event_names, self._arg_names, self._fixed):
            table.clear()
        trace = pb.Trace()
        first = trace.packet.add()
        first.trusted_packet_sequence_id = _SEQUENCE
        first.sequence_flags = _CLEARED
        first.first_packet_on_sequence = True
        first.trace_packet_defaults.timestamp_clock_id = _MONOTONIC
        snapshot = _add(trace).clock_snapshot
        snapshot.primary_trace_clock = _MONOTONIC
        snapshot.clocks.add(clock_id=_MONOTONIC, timestamp=at_ns)
        snapshot.clocks.add(clock_id=_REALTIME, timestamp=wall_ns)
        root = _add(trace).track_descriptor
        root.uuid, root.name, root.child_ordering = ROOT, _text(title), _EXPLICIT_ORDER
        for declared in self._declared:
            _declare(_add(trace), declared)
        again: list[Event] = [begun for track in self._open for begun in self._open[track]]
        running: list[Event] = []
        for track, (began_ns, what, about) in self._running.items():
            name, flows, args = about(what)
            running.append((BEGIN, track, name, began_ns, args, flows))
        said = map(self._event, [*running, *again, *self._stands.values()])
        return trace.SerializeToString() + b"".join(said)

    def encode(self, events: Sequence[Event]) -> bytes:
        """Packets of these events, whole ones only."""
        done: list[bytes] = []
        for event in events:
            track = event[1]
            if event[0] == SERIES:
                self._series(event, done)
                continue
            if event[0] == BEGIN:
                self._open.setdefault(track, []).append(event)
                self._latest_ns[track] = event[3]
            elif event[0] == END:
                if not self._open.get(track):
                    continue  # it was ended with the slice of a series that it lay in
                self._open[track].pop()
                self._latest_ns[track] = event[2]
            elif event[0] == COUNT:
                self._stands[track] = event
            elif event[0] == DECLARE:
                self._declared.append(event)
            done.append(self._event(event))
        return b"".join(done)

    def last(self, at_ns: int) -> bytes:
        """The last packets: what is open ends now, though not before the latest event of its track."""
        done: list[bytes] = []
        for track in dict.fromkeys((*self._running, *self._open)):
            depth = len(self._open.get(track, ())) + (track in self._running)
            done += [self._wire(track).end(time_of(max(at_ns, self._latest_ns.get(track, 0))))] * depth
        self._running.clear()
        self._open.clear()
        return b"".join(done)

    def _event(self, event: Event) -> bytes:
        match event[0]:
            case 0:
                trace = pb.Trace()
                _declare(_add(trace), event)
                return trace.SerializeToString()
            case 1 | 3:
                kind, track, name, at_ns, args, flows = event
                introduced = self._introduced(name, args)
                number = self._event_names.get(name)
                said, at = (_text(name) if number is None else number), time_of(at_ns)
                try:
                    return introduced + self._wire(track).named(kind, at, said, args, flows)
                except (struct.error, TypeError):  # arrows of the user's that are no numbers: no reason to lose the trace
                    return introduced + self._wire(track).named(kind, at, said, args, ())
            case 2:
                _, track, at_ns, args = event
                return (self._introduced(None, args) if args else b"") + self._wire(track).end(time_of(at_ns), args)
            case 4:
                _, track, value, at_ns = event
                return self._wire(track).count(time_of(at_ns), value if value.__class__ is float else number_of(value))
            case _:
                raise AssertionError("a series is no single event")

    def _introduced(self, name: str | None, args: Mapping[str, Argument] | None) -> bytes:
        """A packet with what names are new; empty where none are, or there is no room for them."""
        names, keys = self._event_names, self._arg_names
        if (name is None or name in names) and (not args or keys.keys() >= args.keys()):
            return b""
        trace = pb.Trace()
        packet = _add(trace)
        if name is not None and name not in names and len(names) < _MOST_NAMES:
            names[name] = len(names) + 1
            packet.interned_data.event_names.add(iid=names[name], name=_text(name))
        for key in args or ():
            if key not in keys and len(keys) < _MOST_NAMES:
                keys[key] = len(keys) + 1
                packet.interned_data.debug_annotation_names.add(iid=keys[key], name=_text(key))
        return trace.SerializeToString() if packet.HasField("interned_data") else b""

    def _series(self, event: Followed, done: list[bytes]) -> None:
        _, track, marks, about = event
        wire, inside = self._wire(track), self._open.setdefault(track, [])
        at_ns = 0
        for index in range(0, len(marks), 2):
            at_ns, what = int(marks[index] * 1e9), marks[index + 1]
            at, kind = time_of(at_ns), what.__class__
            if what is not None and kind is not str and kind is not tuple and self._inner(track, wire, at, at_ns, what, done):
                continue
            if inside:  # nothing lies in what is over
                done += [wire.end(at)] * len(inside)
                inside.clear()
            if track in self._running:
                done.append(wire.end(at))
            if what is None:
                self._running.pop(track, None)
                continue
            self._running[track] = at_ns, what, about
            fixed = self._fixed.get((track, what)) if kind is str else None
            if fixed is not None:
                done.append(fixed[0] + at + fixed[1])
                continue
            name, flows, args = about(what)
            if introduced := self._introduced(name, args):
                done.append(introduced)
            packet = wire.named(BEGIN, at, self._event_names.get(name, name), args, flows)
            done.append(packet)
            if kind is str:
                place = packet.index(at)
                self._fixed[track, what] = packet[:place], packet[place + len(at) :]
        self._latest_ns[track] = at_ns

    def _inner(self, track: int, wire: TrackWire, at: bytes, at_ns: int, what: Any, done: list[bytes]) -> bool:
        """A mark of what lies inside the open slice of a series; gives whether it was one."""
        inside = self._open[track]
        if isinstance(what, Opens):
            begun: Begun = (BEGIN, track, what.name, at_ns, what.args, what.flows)
            inside.append(begun)
            done.append(self._event(begun))
        elif what is CLOSES:
            if inside:  # else it was opened where there was no room for it
                inside.pop()
                done.append(wire.end(at))
        elif isinstance(what, Happens):
            done.append(self._event((INSTANT, track, what.name, at_ns, what.args, what.flows)))
        else:
            return False
        return True

    def _wire(self, track: int) -> TrackWire:
        wire = self._wires.get(track)
        if wire is None:
            wire = self._wires[track] = TrackWire(_SEQUENCE, _NEEDED, track, self._arg_names)
        return wire


def _add(trace: pb.Trace) -> "_Packet":
    packet = trace.packet.add()
    packet.trusted_packet_sequence_id = _SEQUENCE
    packet.sequence_flags = _NEEDED
    return packet


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


def _text(value: object) -> str:
    return value if isinstance(value, str) and value.isascii() else text_of(value).decode()


assert (BEGIN, END, INSTANT, COUNT) == (_wire.BEGIN, _wire.END, _wire.INSTANT, _wire.COUNT)

"""Packets written by hand, read by protobuf's own parser, and compared with those made of its message classes."""

import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.trace._wire import SliceWire, time_of, varint

numbers = st.integers(0, 2**64 - 1)
texts = st.text(max_size=40)
arguments = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 2**63 - 1) | texts, max_size=5)
ARG_IIDS = {name: 120 + 5 * index for index, name in enumerate("abcde")}  # some of one byte, some of two


def parsed(packet: bytes) -> pb.TracePacket:
    (only,) = pb.Trace.FromString(packet).packet
    return only


def expected(sequence: int, flags: int, track: int, at_ns: int, kind: int) -> pb.TracePacket:
    packet = pb.TracePacket(timestamp=at_ns, trusted_packet_sequence_id=sequence, sequence_flags=flags)
    packet.track_event.type, packet.track_event.track_uuid = kind, track
    return packet


@settings(max_examples=100, deadline=None)
@given(
    sequence=st.integers(1, 2**32 - 1), track=numbers, at_ns=st.integers(0, 2**63 - 1), name=st.integers(1, 2**20),
    args=arguments, flows=st.lists(numbers, max_size=4),
)  # fmt: skip
def test_a_slice_that_begins_reads_as_the_message_of_the_same_content(sequence, track, at_ns, name, args, flows):
    wire = SliceWire(sequence, 2, track, ARG_IIDS)
    wanted = expected(sequence, 2, track, at_ns, pb.TrackEvent.TYPE_SLICE_BEGIN)
    wanted.track_event.name_iid = name
    wanted.track_event.flow_ids.extend(flows)
    for key, value in args.items():
        note = wanted.track_event.debug_annotations.add(name_iid=ARG_IIDS[key])
        if isinstance(value, int):
            note.int_value = value
        else:
            note.string_value = value
    assert parsed(wire.begin(time_of(at_ns), name, args, flows)) == wanted


@settings(max_examples=50, deadline=None)
@given(track=numbers, at_ns=st.integers(0, 2**63 - 1))
def test_a_slice_that_ends_reads_as_the_message_of_the_same_content(track, at_ns):
    wire = SliceWire(1, 2, track, {})
    assert parsed(wire.end(time_of(at_ns))) == expected(1, 2, track, at_ns, pb.TrackEvent.TYPE_SLICE_END)


def test_what_is_neither_a_whole_number_from_0_nor_text_is_written_as_text():
    wire = SliceWire(1, 2, 3, ARG_IIDS)
    odd = {"a": -1, "b": 2**63, "c": 0.5, "d": True, "e": "\ud800 lone"}
    notes = parsed(wire.begin(time_of(5), 1, odd, ())).track_event.debug_annotations
    assert [note.string_value for note in notes] == ["-1", str(2**63), "0.5", "True", "\\ud800 lone"]


@given(numbers)
def test_a_varint_is_the_shortest_and_reads_back(number):
    """Decoded here bit by bit: seven to a byte, the lowest first."""
    wire = varint(number)
    assert sum((byte & 127) << 7 * place for place, byte in enumerate(wire)) == number
    assert len(wire) == max(1, -(-number.bit_length() // 7))
    assert [byte >> 7 for byte in wire] == [1] * (len(wire) - 1) + [0]

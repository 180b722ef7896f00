"""Packets written by hand, read by protobuf's own parser, and compared with those made of its message classes."""

import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.trace._wire import BEGIN, COUNT, INSTANT, TrackWire, time_of, varint

numbers = st.integers(0, 2**64 - 1)
texts = st.text(max_size=40)
values = st.integers(-(2**63), 2**63 - 1) | texts | st.booleans() | st.floats(allow_nan=False)
arguments = st.dictionaries(st.sampled_from("abcdef"), values, max_size=6)
ARG_IIDS = {name: 120 + 5 * index for index, name in enumerate("abcde")}  # some of one byte, some of two, and one of none


def parsed(packet: bytes) -> pb.TracePacket:
    (only,) = pb.Trace.FromString(packet).packet
    return only


def expected(sequence: int, flags: int, track: int, at_ns: int, kind: int) -> pb.TracePacket:
    packet = pb.TracePacket(timestamp=at_ns, trusted_packet_sequence_id=sequence, sequence_flags=flags)
    packet.track_event.type, packet.track_event.track_uuid = kind, track
    return packet


def annotate(event: pb.TrackEvent, args: dict) -> None:
    for key, value in args.items():
        note = event.debug_annotations.add()
        if key in ARG_IIDS:
            note.name_iid = ARG_IIDS[key]
        else:
            note.name = key
        if isinstance(value, bool):
            note.bool_value = value
        elif isinstance(value, int):
            note.int_value = value
        elif isinstance(value, float):
            note.double_value = value
        else:
            note.string_value = value


@settings(max_examples=100, deadline=None)
@given(
    sequence=st.integers(1, 2**32 - 1), track=numbers, at_ns=st.integers(0, 2**63 - 1), name=st.integers(1, 2**20),
    args=arguments, flows=st.lists(numbers, max_size=4), kind=st.sampled_from([BEGIN, INSTANT]),
)  # fmt: skip
def test_an_event_with_a_name_reads_as_the_message_of_the_same_content(sequence, track, at_ns, name, args, flows, kind):
    wire = TrackWire(sequence, 2, track, ARG_IIDS)
    wanted = expected(sequence, 2, track, at_ns, kind)
    wanted.track_event.name_iid = name
    wanted.track_event.flow_ids.extend(flows)
    annotate(wanted.track_event, args)
    assert parsed(wire.named(kind, time_of(at_ns), name, args, flows)) == wanted
    wanted.track_event.name = "written out"
    assert parsed(wire.named(kind, time_of(at_ns), "written out", args, flows)) == wanted


@settings(max_examples=50, deadline=None)
@given(track=numbers, at_ns=st.integers(0, 2**63 - 1), args=arguments)
def test_a_slice_that_ends_reads_as_the_message_of_the_same_content(track, at_ns, args):
    wire = TrackWire(1, 2, track, ARG_IIDS)
    wanted = expected(1, 2, track, at_ns, pb.TrackEvent.TYPE_SLICE_END)
    assert parsed(wire.end(time_of(at_ns))) == wanted
    annotate(wanted.track_event, args)
    assert parsed(wire.end(time_of(at_ns), args)) == wanted


@given(track=numbers, at_ns=st.integers(0, 2**63 - 1), value=st.floats(allow_nan=False))
def test_a_count_reads_as_the_message_of_the_same_content(track, at_ns, value):
    wanted = expected(1, 2, track, at_ns, pb.TrackEvent.TYPE_COUNTER)
    wanted.track_event.double_counter_value = value
    assert parsed(TrackWire(1, 2, track, {}).count(time_of(at_ns), value)) == wanted
    assert COUNT == pb.TrackEvent.TYPE_COUNTER


def test_what_is_neither_text_nor_a_number_that_fits_is_written_as_text():
    wire = TrackWire(1, 2, 3, ARG_IIDS)
    odd = {"a": 2**63, "b": None, "e": "\ud800 lone"}
    notes = parsed(wire.named(BEGIN, time_of(5), 1, odd, ())).track_event.debug_annotations
    assert [note.string_value for note in notes] == [str(2**63), "None", "\\ud800 lone"]


@given(numbers)
def test_a_varint_is_the_shortest_and_reads_back(number):
    """Decoded here bit by bit: seven to a byte, the lowest first."""
    wire = varint(number)
    assert sum((byte & 127) << 7 * place for place, byte in enumerate(wire)) == number
    assert len(wire) == max(1, -(-number.bit_length() // 7))
    assert [byte >> 7 for byte in wire] == [1] * (len(wire) - 1) + [0]

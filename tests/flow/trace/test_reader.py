"""The reader on files that are cut, foreign, empty or broken."""

import pytest

from flow.trace import PerfettoWriter, TraceError, read_trace
from flow.trace._packets import PacketEncoder
from flow.trace._wire import INSTANT, TrackWire, time_of


@pytest.fixture
def content(tmp_path) -> bytes:
    with PerfettoWriter(tmp_path / "whole") as writer:
        track = writer.track("a")
        for n in range(20):
            writer.begin(track, "work", 10 * n, {"text": "x" * n})
            writer.end(track, 10 * n + 5)
    return (tmp_path / "whole").read_bytes()


def test_a_file_cut_at_any_byte_gives_the_packets_before_the_cut(tmp_path, content):
    """S102: however a crash cuts the file, what was whole is read, and the rest is counted."""
    previous = 0
    for length in range(200, len(content)):
        (tmp_path / "cut").write_bytes(content[:length])
        trace = read_trace(tmp_path / "cut")
        assert len(trace.slices) >= previous
        assert all(s.args == {"text": "x" * (s.start_ns // 10)} for s in trace.slices)
        previous = len(trace.slices)
        assert 0 <= trace.torn_bytes < 70
    assert previous == 20


def test_zeros_after_the_last_packet_are_counted_as_torn(tmp_path, content):
    (tmp_path / "zeros").write_bytes(content + bytes(4_096))
    trace = read_trace(tmp_path / "zeros")
    assert (len(trace.slices), trace.torn_bytes) == (20, 4_096)


@pytest.mark.parametrize("foreign", [b"", b"{}", b"\x0a", b"\x0a\xff\xff\xff\xff\x7f"])
def test_a_file_without_a_packet_is_refused_with_what_to_do(tmp_path, foreign):
    (tmp_path / "foreign").write_bytes(foreign)
    with pytest.raises(TraceError, match=r"expected a Perfetto trace, got \d+ bytes .* in .*foreign; give the run.pftrace"):
        read_trace(tmp_path / "foreign")


def test_an_event_on_a_track_that_was_not_declared_is_refused(tmp_path):
    write(tmp_path / "t", TrackWire(1, 2, 9, {}).named(INSTANT, time_of(3), "x", None, ()))
    with pytest.raises(TraceError, match=r"expected a declared track, got an event on track 9 at 3 ns, in .*t; the file"):
        read_trace(tmp_path / "t")


def test_an_end_without_a_begin_is_refused(tmp_path):
    write(tmp_path / "t", TrackWire(1, 2, 1, {}).end(time_of(3)))
    with pytest.raises(TraceError, match="expected an open slice, got an end on 'title' at 3 ns"):
        read_trace(tmp_path / "t")


def write(path, packet: bytes) -> None:
    path.write_bytes(PacketEncoder().head("title", 0, 0) + packet)

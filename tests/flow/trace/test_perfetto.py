"""The writer, seen through the protobuf classes of the perfetto package and through its own reader."""

import math
import threading
import time
from itertools import pairwise
from pathlib import Path

import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as pb
import pytest

from flow.trace import PerfettoWriter, Recorder, read_trace


def packets_of(path: Path) -> list[pb.TracePacket]:
    return list(pb.Trace.FromString(path.read_bytes()).packet)


def test_the_writer_is_a_recorder(tmp_path):
    recorder: Recorder = PerfettoWriter(tmp_path / "t")
    assert recorder.track("a") == recorder.track("a")


def test_slices_read_back_with_name_length_depth_details_and_flow(tmp_path):
    with PerfettoWriter(tmp_path / "t") as writer:
        stage = writer.track("stage")
        lane = writer.track("worker 0", stage, rank=3)
        writer.begin(lane, "work", 1_000, {"item": 7, "task": "a/b", "share": 0.5, "last": True}, flows=(42, 2**64 - 1))
        writer.begin(lane, "model", 1_200)
        writer.end(lane, 1_700)
        writer.end(lane, 2_000)
    outer, inner = read_trace(tmp_path / "t").slices
    assert (outer.name, outer.start_ns, outer.end_ns, outer.depth) == ("work", 1_000, 2_000, 0)
    assert (inner.name, inner.start_ns, inner.end_ns, inner.depth) == ("model", 1_200, 1_700, 1)
    assert outer.args == {"item": 7, "task": "a/b", "share": 0.5, "last": True}
    assert outer.flows == (42, 2**64 - 1)
    track = read_trace(tmp_path / "t").tracks[lane]
    assert (track.name, track.parent, track.kind, track.rank) == ("worker 0", stage, "slices", 3)


def test_recorded_times_come_back_as_they_were_measured(tmp_path):
    """S104: a model call of 50 ms and a tool of 20 ms are in the file with those lengths, and neither is 0."""
    with PerfettoWriter(tmp_path / "t") as writer:
        track = writer.track("episode")
        for name, start_ns, length_ns in [("model", 0, 50_000_000), ("tool", 50_000_000, 20_000_000)]:
            writer.begin(track, name, start_ns)
            writer.end(track, start_ns + length_ns)
    assert {s.name: s.end_ns - s.start_ns for s in read_trace(tmp_path / "t").slices} == {
        "model": 50_000_000,
        "tool": 20_000_000,
    }


def test_every_packet_obeys_the_format(tmp_path):
    """Checked on the protobuf messages, without the reader: what the viewer needs to show the file at all."""
    with PerfettoWriter(tmp_path / "t") as writer:
        depth = writer.counter("depth", "items")
        tracks = [writer.track(f"worker {n}") for n in range(3)]
        for step in range(50):
            for track in tracks:
                writer.begin(track, f"step {step % 5}", 100 * step, {"step": step}, flows=(step,))
                writer.instant(track, "half", 100 * step + 50)
                writer.end(track, 100 * step + 90)
            writer.count(depth, step, 100 * step)
    packets = packets_of(tmp_path / "t")
    assert packets[0].sequence_flags == 1
    assert packets[0].trace_packet_defaults.timestamp_clock_id == pb.BUILTIN_CLOCK_MONOTONIC
    assert {p.trusted_packet_sequence_id for p in packets} == {1}
    assert {p.sequence_flags for p in packets[1:]} == {2}
    declared, known, latest, open_slices = set(), set(), {}, dict.fromkeys(tracks, 0)
    for packet in packets:
        known.update(entry.iid for entry in packet.interned_data.event_names)
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.parent_uuid in declared or not declared
            declared.add(packet.track_descriptor.uuid)
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in declared
            assert packet.timestamp >= latest.get(event.track_uuid, 0)
            latest[event.track_uuid] = packet.timestamp
            assert event.name_iid in known or event.type in {pb.TrackEvent.TYPE_SLICE_END, pb.TrackEvent.TYPE_COUNTER}
            if event.type in {pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END}:
                open_slices[event.track_uuid] += 1 if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN else -1
                assert open_slices[event.track_uuid] in {0, 1}
    assert set(open_slices.values()) == {0}
    assert len(known) == 6
    names = [entry.name for p in packets for entry in p.interned_data.event_names]
    assert sorted(names) == ["half", "step 0", "step 1", "step 2", "step 3", "step 4"]


def test_a_flow_joins_the_slices_that_carry_its_number(tmp_path):
    with PerfettoWriter(tmp_path / "t") as writer:
        for place, name in enumerate(["prompt", "episode", "batch"]):
            track = writer.track(name)
            writer.begin(track, name, 10 * place, flows=(5, 100 + place))
            writer.end(track, 10 * place + 5)
    assert [s.name for s in read_trace(tmp_path / "t").slices if 5 in s.flows] == ["prompt", "episode", "batch"]
    assert [s.name for s in read_trace(tmp_path / "t").slices if 101 in s.flows] == ["episode"]


def test_counters_keep_their_unit_and_values(tmp_path):
    with PerfettoWriter(tmp_path / "t") as writer:
        depth = writer.counter("depth", "items")
        rate = writer.counter("rate", "tokens/s")
        for at_ns, value in enumerate([0, 3, 2**40]):
            writer.count(depth, value, at_ns)
        writer.count(rate, 0.25, 9)
    trace = read_trace(tmp_path / "t")
    assert [(c.at_ns, c.value) for c in trace.counts if c.track == depth] == [(0, 0.0), (1, 3.0), (2, 2.0**40)]
    assert [c.value for c in trace.counts if c.track == rate] == [0.25]
    assert (trace.tracks[depth].kind, trace.tracks[depth].unit) == ("counter", "items")


def test_names_and_details_of_any_text_survive(tmp_path):
    """S43: what strict JSON or UTF-8 would refuse is written and reads back with the fact preserved."""
    names = ["прогон", "日本 🚀", 'quote " brace } \\', "line\nbreak\0", ""]
    details = {"nan": float("nan"), "inf": float("-inf"), "big": 2**70, "small": -(2**63), "ünï": "\ud800 lone"}
    with PerfettoWriter(tmp_path / "t") as writer:
        track = writer.track("трек")
        for name in names:
            writer.instant(track, name, 1, details)
    trace = read_trace(tmp_path / "t")
    assert [i.name for i in trace.instants] == names
    assert trace.tracks[track].name == "трек"
    args = trace.instants[-1].args
    assert args["nan"] != args["nan"]
    assert (args["inf"], args["big"], args["small"]) == (float("-inf"), str(2**70), -(2**63))
    assert args["ünï"] == "\\ud800 lone"


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_what_user_code_hands_over_amiss_costs_no_more_than_itself(tmp_path):
    """S43: the thread that writes meets the user's objects, and the trace goes on whatever they do there."""
    with PerfettoWriter(tmp_path / "t") as writer:
        track, counter = writer.track("a"), writer.counter("c", 5)
        for value in ("much", None, 10**400, "2.5", 3):
            writer.count(counter, value, 1)
        for name, args, flows in ((Unprintable(), {}, ()), (7, {}, ()), ("args", {"x": Unprintable()}, ())):
            writer.begin(track, name, 1, args, flows)
            writer.end(track, 2)
        for flows in ([-1], [2**64], ["a"], 3):
            writer.instant(track, "flows", 3, {"n": 1}, flows)
        writer.instant(track, "after", 4)
    trace = read_trace(tmp_path / "t")
    unprintable = "<Unprintable that gives no text>"
    assert [(s.name, s.args) for s in trace.slices] == [(unprintable, {}), ("7", {}), ("args", {"x": unprintable})]
    assert [(i.name, i.args, i.flows) for i in trace.instants] == [("flows", {"n": 1}, ())] * 4 + [("after", {}, ())]
    values = [count.value for count in trace.counts]
    assert all(math.isnan(value) for value in values[:3])
    assert values[3:] == [2.5, 3.0]


def test_more_names_than_the_table_holds_are_written_out(tmp_path):
    with PerfettoWriter(tmp_path / "t") as writer:
        track = writer.track("a")
        for n in range(5_000):
            writer.instant(track, f"name {n}", n, {f"key {n}": n})
    instants = read_trace(tmp_path / "t").instants
    assert [(i.name, i.args) for i in instants] == [(f"name {n}", {f"key {n}": n}) for n in range(5_000)]
    interned = [entry for p in packets_of(tmp_path / "t") for entry in p.interned_data.event_names]
    assert len(interned) == 4_096


def test_one_snapshot_ties_the_clock_to_the_wall(tmp_path):
    before_ns = time.time_ns()
    with PerfettoWriter(tmp_path / "t") as writer:
        writer.instant(writer.track("a"), "now", time.monotonic_ns())
    trace = read_trace(tmp_path / "t")
    assert before_ns - 10**6 <= trace.instants[0].at_ns + trace.wall_offset_ns <= time.time_ns() + 10**6


def test_closing_ends_open_slices_at_that_time_and_stragglers_do_no_harm(tmp_path):
    """S101, the second half: an open slice ends when the trace does, not at some later begin."""
    clock = iter([0, 500])
    with PerfettoWriter(tmp_path / "t", clock=lambda: next(clock)) as writer:
        first, second = writer.track("a"), writer.track("b")
        writer.begin(first, "outer", 100)
        writer.begin(first, "inner", 200)
        writer.begin(second, "late", 900)
    writer.end(first, 950)
    writer.begin(first, "after", 960)
    writer.end(first, 970)
    ends = {s.name: s.end_ns for s in read_trace(tmp_path / "t").slices}
    assert ends == {"outer": 500, "inner": 500, "late": 900}


def test_ending_what_is_not_open_is_refused_at_the_call(tmp_path):
    with PerfettoWriter(tmp_path / "t") as writer:
        track = writer.track("a")
        writer.begin(track, "x", 1)
        writer.end(track, 2)
        with pytest.raises(AssertionError, match=f"no slice is open on track {track}"):
            writer.end(track, 3)


def test_threads_record_on_their_own_tracks_without_losing_anything(tmp_path):
    def work(track: int) -> None:
        for n in range(2_000):
            writer.begin(track, "work", 2 * n, {"n": n})
            writer.end(track, 2 * n + 1)

    with PerfettoWriter(tmp_path / "t") as writer:
        tracks = [writer.track(f"thread {n}") for n in range(4)]
        threads = [threading.Thread(target=work, args=(track,)) for track in tracks]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            writer.flush()  # against the recording threads and the writer's own
        for thread in threads:
            thread.join()
    trace = read_trace(tmp_path / "t")
    for track in tracks:
        mine = [s for s in trace.slices if s.track == track]
        assert [s.args["n"] for s in mine] == list(range(2_000))
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(mine))


@pytest.mark.slow
def test_the_file_grows_while_the_run_goes_on(tmp_path):
    with PerfettoWriter(tmp_path / "t") as writer:
        writer.instant(writer.track("a"), "early", 1)
        deadline = time.monotonic() + 5
        while not read_trace(tmp_path / "t").instants and time.monotonic() < deadline:
            threading.Event().wait(0.02)
        assert [i.name for i in read_trace(tmp_path / "t").instants] == ["early"]


def test_a_flood_is_bounded_in_memory_and_counted(tmp_path):
    """Events that come faster than they can be written are left out as whole slices; the backlog stays bounded."""
    with PerfettoWriter(tmp_path / "t", max_backlog=1_000) as writer:
        track = writer.track("a")
        for n in range(100_000):
            writer.begin(track, "work", 2 * n)
            writer.end(track, 2 * n + 1)
        assert writer.num_dropped > 0
    trace = read_trace(tmp_path / "t")
    assert all(s.end_ns == s.start_ns + 1 for s in trace.slices)
    assert len(trace.slices) + writer.num_dropped == 100_000
    assert sum(i.name == "left out of the trace" for i in trace.instants) >= 1


def test_a_file_that_cannot_be_written_is_refused_at_the_start():
    writer = PerfettoWriter("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        writer.__enter__()


def test_a_failed_write_is_raised_at_the_close_and_ends_the_recording(tmp_path):
    """S99, for traces: the background write fails, the run goes on, the close says so."""
    writer = PerfettoWriter(tmp_path / "t")
    writer.__enter__()
    track = writer.track("a")
    writer.instant(track, "no such time", 2**64)
    writer.flush()
    writer.begin(track, "later", 2)
    writer.end(track, 3)
    with pytest.raises(IndexError):
        writer.close()
    assert writer.num_dropped == 1
    writer.close()


def test_the_error_of_the_body_stays_on_top_of_one_of_the_writer(tmp_path):
    def body() -> None:
        with PerfettoWriter(tmp_path / "t") as writer:
            writer.instant(writer.track("a"), "no such time", 2**64)
            raise KeyError("body")

    with pytest.raises(KeyError) as caught:
        body()
    assert "The trace was not written to its end either" in caught.value.__notes__[0]


def test_no_thread_is_left_after_the_close(tmp_path):
    with PerfettoWriter(tmp_path / "t"):
        assert "trace writer" in {thread.name for thread in threading.enumerate()}
    assert "trace writer" not in {thread.name for thread in threading.enumerate()}


def test_a_call_costs_well_under_a_microsecond(tmp_path):
    """The bound is wide, for a loaded machine; the median of an idle one is about 0.2 microseconds a call."""
    with PerfettoWriter(tmp_path / "t") as writer:
        track = writer.track("a")
        best_ns = min(time_pairs_ns(writer, track, 5_000) for _ in range(7))
    assert best_ns / 2 < 2_000


def time_pairs_ns(writer: PerfettoWriter, track: int, num: int) -> float:
    start_ns = time.perf_counter_ns()
    for n in range(num):
        writer.begin(track, "work", n)
        writer.end(track, n)
    return (time.perf_counter_ns() - start_ns) / num

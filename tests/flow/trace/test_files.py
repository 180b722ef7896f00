"""The files of a run that was started several times are read as one trace."""

import pytest

from flow.trace import PerfettoWriter, TraceError, read_trace, trace_file


def write(folder, attempt, at_ns):
    """A start of a run: a slice of a worker, an instant and a count, of the item with arrow 5."""
    with PerfettoWriter(trace_file(folder, attempt), clock=lambda: at_ns) as recorder:
        graph = recorder.track("graph g")
        worker, depth = recorder.track("w", graph), recorder.counter("depth", parent=graph)
        if attempt:
            recorder.track("only later", graph)
        recorder.begin(worker, "work", at_ns + 10, flows=(5,))
        recorder.instant(worker, "published", at_ns + 11)
        recorder.count(depth, attempt, at_ns + 12)
        recorder.end(worker, at_ns + 20)


def test_what_is_on_one_track_in_each_file_is_on_one_track_in_the_order_of_time(tmp_path):
    for attempt in (0, 1, 2):
        write(tmp_path, attempt, 0)  # clocks begin anew, as after the machine was started again
    trace = read_trace(tmp_path)
    assert sorted(track.name for track in trace.tracks.values()) == ["depth", "graph g", "only later", "run", "w"]
    works = [(trace.tracks[each.track].name, each.start_ns) for each in trace.slices]
    assert [name for name, _ in works] == ["w", "w", "w"]
    times = [at for _, at in works]
    assert times[0] == 10
    assert times == sorted(times)
    assert len(set(times)) == 3
    assert [each.end_ns - each.start_ns for each in trace.slices] == [10, 10, 10]
    assert [count.value for count in trace.counts] == [0, 1, 2]
    assert [instant.at_ns - work.start_ns for instant, work in zip(trace.instants, trace.slices, strict=True)] == [1, 1, 1]


def test_between_two_starts_is_a_gap_in_which_no_file_is_missing(tmp_path):
    for attempt in (0, 1, 2):
        write(tmp_path, attempt, attempt * 10**12)
    trace = read_trace(tmp_path)
    ends = [each.end_ns for each in trace.slices]
    assert [(gap.start_ns, gap.missing) for gap in trace.gaps] == [(end, ()) for end in ends[:2]]
    assert all(gap.end_ns <= later.start_ns for gap, later in zip(trace.gaps, trace.slices[1:], strict=True))


def test_a_start_of_which_no_file_is_left_is_missing(tmp_path):
    for attempt in (0, 1, 2):
        write(tmp_path, attempt, attempt * 10**12)
    trace_file(tmp_path, 1).unlink()
    (gap,) = read_trace(tmp_path).gaps
    assert gap.missing == ("run.1.pftrace",)


def test_arrows_of_one_start_do_not_lead_into_another(tmp_path):
    write(tmp_path, 0, 0)
    write(tmp_path, 1, 0)
    first, second = (each.flows for each in read_trace(tmp_path).slices)
    assert first == (5,)
    assert second != first


def test_a_single_file_is_read_alone_and_others_beside_it_are_no_part_of_a_run(tmp_path):
    write(tmp_path, 0, 0)
    write(tmp_path, 1, 0)
    (tmp_path / "run.old.pftrace").write_bytes(b"")
    assert len(read_trace(trace_file(tmp_path, 1)).slices) == 1
    assert len(read_trace(tmp_path).slices) == 2


def test_a_folder_without_a_trace_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"got one without run.pftrace, in .*; give the folder, or a file"):
        read_trace(tmp_path)

"""A trace that outgrows a file goes on in others: bounded in all, each readable alone, all of them together one trace."""

from itertools import pairwise

import pytest

from flow.trace import PerfettoWriter, read_trace, trace_file

MAX_BYTES = 40_000


def about(what):
    return what, (), {"of": what}


def record(folder, steps, *, attempt=0, max_bytes=MAX_BYTES, start=0):
    """Steps of a second each: a lane that works and waits, a span that is open all the time, a group a step, a counter."""
    path, second = trace_file(folder, attempt), 10**9
    with PerfettoWriter(path, max_bytes=max_bytes, clock=lambda: (start + steps) * second) as writer:
        graph = writer.track("graph g")
        lane, whole, group = (writer.track(name, graph) for name in ("lane", "whole", "group"))
        depth = writer.counter("depth", "items", graph)
        writer.begin(whole, "all of it", start * second, {"attempt": attempt}, (7,))
        for step in range(start, start + steps):
            writer.begin(group, "group", step * second, {"birth": step}, (1000 + step,))
            writer.series(lane, [float(step), "wait for input", step + 0.5, "work"], about)
            writer.count(depth, step % 3, step * second + 1)
            writer.end(group, step * second + second // 2, {"members": step})
            if step % 5 == 0:
                writer.flush()
        assert writer.num_dropped == 0
    return path


def files(folder):
    return sorted(file.name for file in folder.iterdir())


def size(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


def spans_named(trace, name):
    return [each for each in trace.slices if each.name == name]


def test_a_short_trace_is_one_file(tmp_path):
    record(tmp_path, 20)
    assert files(tmp_path) == ["run.pftrace"]


def test_the_files_of_a_long_trace_are_read_as_one(tmp_path):
    """Each slice once and whole, also those that were open when a file was full; each value of a counter once."""
    record(tmp_path, 300, max_bytes=1_000_000_000)
    whole = read_trace(tmp_path)
    for file in tmp_path.iterdir():
        file.unlink()
    record(tmp_path, 300, max_bytes=200_000)
    assert files(tmp_path)[:2] == ["run.part1.pftrace", "run.pftrace"]
    parts = read_trace(tmp_path)
    assert parts.slices == whole.slices
    assert parts.counts == whole.counts
    assert parts.tracks == whole.tracks


@pytest.mark.parametrize("steps", [500, 2000])
def test_all_files_together_stay_within_the_bound_and_the_first_and_the_last_are_kept(tmp_path, steps):
    record(tmp_path, steps)
    assert size(tmp_path) < MAX_BYTES * 1.3  # and what one write adds, which is much of so small a file
    trace = read_trace(tmp_path)
    births = [each.args["birth"] for each in spans_named(trace, "group")]
    assert births[0] == 0
    assert births[-1] == steps - 1
    assert len(births) < steps
    assert sum(after != before + 1 for before, after in pairwise(births)) == 1, "there is one gap"
    assert [(each.start_ns, each.end_ns, each.flows) for each in spans_named(trace, "all of it")] == [(0, steps * 10**9, (7,))]


def test_what_was_open_before_a_gap_is_known_to_be_open_until_then(tmp_path):
    """And is not stretched over the gap: nobody knows when it ended."""
    record(tmp_path, 2000)
    trace = read_trace(tmp_path)
    lengths = [each.end_ns - each.start_ns for each in trace.slices if each.name in ("group", "work")]
    assert max(lengths) == 10**9 // 2
    assert sum(length < 10**9 // 2 for length in lengths) == 1


def test_each_file_can_be_read_alone(tmp_path):
    """It declares its tracks, names what it refers to, and begins again what is open, when it began."""
    record(tmp_path, 500)
    for file in tmp_path.iterdir():
        trace = read_trace(file)
        assert {track.name for track in trace.tracks.values()} == {"run", "graph g", "lane", "whole", "group", "depth"}
        (whole,) = spans_named(trace, "all of it")
        assert (whole.start_ns, whole.args) == (0, {"attempt": 0})
        assert all(each.args["of"] == each.name for each in trace.slices if each.name in ("work", "wait for input"))


def test_the_bound_is_one_for_all_starts_of_a_run(tmp_path):
    for attempt in range(3):
        record(tmp_path, 500, attempt=attempt, start=1000 * attempt)
    assert size(tmp_path) < MAX_BYTES * 1.3
    trace = read_trace(tmp_path)
    births = [each.args["birth"] for each in spans_named(trace, "group")]
    assert births[0] == 0
    assert births[-1] == 2499
    assert files(tmp_path)[-1] == "run.pftrace"


def test_a_trace_begun_anew_leaves_nothing_of_the_one_before(tmp_path):
    record(tmp_path, 500)
    assert len(files(tmp_path)) > 1
    record(tmp_path, 20)
    assert files(tmp_path) == ["run.pftrace"]


def test_a_file_just_begun_by_a_run_that_was_killed_does_no_harm(tmp_path):
    record(tmp_path, 20)
    (tmp_path / "run.part1.pftrace").touch()
    assert len(spans_named(read_trace(tmp_path), "group")) == 20


@pytest.mark.slow
def test_a_run_of_10_000_steps_stays_within_its_bound(tmp_path):
    """S103: the size is bounded by a number the caller gives, whatever the length of the run."""
    record(tmp_path, 10_000, max_bytes=400_000)
    assert size(tmp_path) < 400_000 * 1.1
    births = [each.args["birth"] for each in spans_named(read_trace(tmp_path), "group")]
    assert (births[0], births[-1]) == (0, 9_999)
    assert len(births) > 1000

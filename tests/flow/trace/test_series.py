"""Series: slices that follow on each other are read back as they were, with gaps where there was no room, and all ended."""

from pathlib import Path

from flow.trace import PerfettoWriter, read_trace


def about(what: str) -> tuple[str, tuple[int, ...], dict[str, str]]:
    return what, (), {"of": what}


def slices(path: Path) -> list[tuple[str, int, int]]:
    return [(s.name, s.start_ns // 10**9, s.end_ns // 10**9) for s in read_trace(path).slices]


def test_the_slice_that_is_open_after_one_series_is_ended_by_the_next(tmp_path):
    with PerfettoWriter(tmp_path / "t", clock=lambda: 9 * 10**9) as writer:
        track = writer.track("lane")
        writer.series(track, [1.0, "a", 2.0, "b"], about)
        writer.series(track, [3.0, None, 4.0, "a", 5.0, None], about)
    assert slices(tmp_path / "t") == [("a", 1, 2), ("b", 2, 3), ("a", 4, 5)]


def test_what_is_open_at_the_close_is_ended_then(tmp_path):
    with PerfettoWriter(tmp_path / "t", clock=lambda: 9 * 10**9) as writer:
        track = writer.track("lane")
        writer.series(track, [1.0, "a", 2.0, "b"], about)
    assert slices(tmp_path / "t") == [("a", 1, 2), ("b", 2, 9)]


def test_other_slices_may_lie_inside_one_of_a_series(tmp_path):
    with PerfettoWriter(tmp_path / "t") as writer:
        track = writer.track("lane")
        writer.series(track, [1.0, "work"], about)
        writer.begin(track, "model", 2 * 10**9)
        writer.end(track, 3 * 10**9)
        writer.series(track, [4.0, None], about)
    found = {s.name: (s.start_ns // 10**9, s.end_ns // 10**9, s.depth) for s in read_trace(tmp_path / "t").slices}
    assert found == {"work": (1, 4, 0), "model": (2, 3, 1)}


def test_a_series_without_room_is_a_gap_and_counted(tmp_path):
    """What was open before the gap is ended where the gap begins, not stretched over it."""
    with PerfettoWriter(tmp_path / "t", max_backlog=4) as writer:
        track = writer.track("lane")
        writer.series(track, [1.0, "before"], about)
        writer.series(track, [float(second) for pair in range(10, 20) for second in (pair, pair)], about)
        assert writer.num_dropped == 10
        writer.flush()
        writer.series(track, [20.0, "after", 21.0, None], about)
    assert slices(tmp_path / "t") == [("before", 1, 10), ("after", 20, 21)]
    assert [i.args["events"] for i in read_trace(tmp_path / "t").instants if i.name == "left out of the trace"] == [10]


def test_names_and_details_are_written_once_and_then_by_number(tmp_path):
    with PerfettoWriter(tmp_path / "t") as writer:
        track = writer.track("lane")
        writer.series(track, [part for second in range(100) for part in (float(second), "a name of some length")], about)
    found = read_trace(tmp_path / "t").slices
    assert len(found) == 100
    assert {(s.name, s.args["of"]) for s in found} == {("a name of some length", "a name of some length")}
    assert [(s.start_ns, s.end_ns) for s in found[:-1]] == [(n * 10**9, (n + 1) * 10**9) for n in range(99)]

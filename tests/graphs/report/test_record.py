"""Whatever a folder lacks, or whatever is torn in it, leaves out what it would have said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphs.report import figures, tables
from graphs.report.record import number, read_record, stamp

Left = Callable[..., Path]
MakeRow = Callable[..., dict[str, Any]]


def test_an_empty_folder_and_none_at_all_give_an_empty_record(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        record = read_record(folder)
        assert (record.rows, record.summary, record.main, record.ended) == ({}, {}, None, False)
        assert figures.learning(record) + figures.flowing(record) + figures.speed(record) == []
        assert tables.headline(record) == []


def test_a_torn_line_is_passed_over(left: Left, row: MakeRow) -> None:
    """S102."""
    folder = left([row(1), row(2)])
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"time": "2026')
    (folder / "summary.json").write_bytes(b'{"status": "comp')
    record = read_record(folder)
    assert [one["step"] for one in record.trainings["rl"]] == [1, 2]
    assert record.summary == {}


def test_a_number_that_is_not_finite_is_a_gap_and_told(left: Left, row: MakeRow) -> None:
    """S43."""
    record = read_record(left([row(1), row(2, loss="nan", grad_norm="inf"), row(3)]))
    loss = next(plot for plot in figures.learning(record) if plot.title == "Loss")
    assert loss.series[0].values == [0.5, None, 0.5 / 3]
    assert loss.note == "1 value is not finite, and no part of the line"
    assert [number(value) for value in ("nan", True, None, float("inf"), 2)] == [None, None, None, None, 2.0]


def test_a_run_is_gone_on_with_between_the_steps_of_two_starts(left: Left, row: MakeRow) -> None:
    record = read_record(left([row(1), row(2), row(3, attempt=1)]))
    assert next(iter(figures.learning(record))).marks == [2.5]


def test_the_last_training_is_the_main_one_and_those_before_have_plots_of_their_own(left: Left, row: MakeRow) -> None:
    rows = [row(1, phase="warm_start", reward_mean=None, success=None), row(1), row(2)]
    record = read_record(left(rows))
    assert record.main == "rl"
    assert [(name, [plot.title for plot in plots]) for name, plots in figures.before(record)] == [
        ("warm start", ["Loss", "Gradient norm", "Tokens per second"])
    ]


def test_evaluations_during_training_are_drawn_by_version_and_else_those_before_and_after(left: Left, row: MakeRow) -> None:
    told = {"phase": "rl", "stage": "heldout_scores", "heldout_low": 0.1, "heldout_high": 0.5}
    during = read_record(left([row(1), {**told, "version": 5, "heldout": 0.3}, {**told, "version": 0, "heldout": 0.2}]))
    assert figures.learning(during)[0].xs == [0.0, 5.0]
    around = {
        f"heldout_{when}_detail": {"success": score, "low": 0.1, "high": 0.9}
        for when, score in (("before", 0.2), ("after", 0.8))
    }
    after = read_record(left([row(1), row(9)], name="other", summary={"status": "completed", **around}))
    plot = figures.learning(after)[0]
    assert (list(plot.xs), plot.series[0].values) == ([0.0, 9.0], [0.2, 0.8])


def test_failed_episodes_stay_in_what_shares_are_of_and_have_a_count_of_their_own(left: Left, row: MakeRow) -> None:
    """S40: of 100 tasks 20 die at set-up and 40 are right: 0.40, not 0.50, and the 20 are told."""
    rows = [row(1, num_episodes=100, success=0.4, episodes_finished=80, episodes_environment_error=20)]
    record = read_record(left(rows, summary={"status": "completed", "episodes": {"finished": 80, "environment_error": 20}}))
    success = next(plot for plot in figures.learning(record) if plot.title == "Success in training")
    assert success.series[0].values == [0.4]
    assert [(end.status, end.count, end.share, end.failed) for end in tables.ends(record)] == [
        ("finished", 80, 0.8, False), ("environment error", 20, 0.2, True),
    ]  # fmt: skip
    layers = next(plot for plot in figures.flowing(record) if plot.title == "How episodes ended").series
    assert [(layer.label, layer.values) for layer in layers] == [("finished", [0.8]), ("environment error", [0.2])]
    fact = next(fact for fact in tables.headline(record) if fact.label == "Episodes")
    assert (fact.value, fact.detail) == ("100", "20 failed, 20%")


def test_errors_that_differ_in_numbers_only_are_of_one_kind(left: Left) -> None:
    told = {"phase": "rl", "task": "a", "messages": []}
    rows = [{**told, "status": "timed_out", "error": f"reset took {at} s", "birth": at} for at in range(3)]
    rows += [{**told, "status": "tool_error", "error": "gone"}, {**told, "status": "finished", "reward": 1.0}]
    stages = {"judge": {"failures": {"OSError": ["OSError: it is down"]}}}
    folder, trace = (
        left(episodes=rows, summary={"status": "failed", "stages": stages}),
        "Traceback\n  line\nOSError: it is down",
    )
    (folder / "errors").mkdir()
    (folder / "errors" / "judge-OSError.txt").write_text(trace + "\n")
    record = read_record(folder)
    assert [(kind.where, kind.text, kind.count) for kind in record.errors] == [
        ("judge", "OSError: it is down", None), ("timed_out", "reset took 0 s", 3), ("tool_error", "gone", 1),
    ]  # fmt: skip
    assert record.errors[0].traceback == trace
    assert record.errors[1].transcript is not None
    assert record.errors[1].transcript.birth == 0


def test_alerts_and_warnings_are_told_those_alike_but_for_numbers_once(left: Left, row: MakeRow) -> None:
    alert = {"phase": "rl", "stage": "alerts", "time": "2026-01-01T00:00:05.1", "alert": "lag_mean>2", "state": "raised",
             "metric": "lag_mean", "value": 2.5, "of_stage": "trainer"}  # fmt: skip
    record = read_record(left([row(1, warning="80% silent"), row(2, warning="90% silent"), alert, row(3, warning="other")]))
    assert tables.warnings(record) == [("80% silent", 2), ("other", 1)]
    assert [(one.time, one.rule, one.state, one.value) for one in tables.alerts(record)] == [
        ("2026-01-01 00:00:05", "lag_mean>2", "raised", "2.5")
    ]


def test_health_is_drawn_over_the_time_of_all_phases(left: Left, row: MakeRow) -> None:
    rows = [{"phase": phase, "stage": "health", "seconds": at, "host_memory_mb": 100.0 + at, "attempt": at // 20}
            for phase, at in (("a", 10), ("b", 20), ("b", 30))]  # fmt: skip
    record = read_record(left([row(1), *rows]))
    (plot,) = figures.condition(record)
    assert (plot.title, plot.xs, plot.marks, plot.x_unit) == ("Host memory", [10.0, 20.0, 30.0], [15.0], "seconds")
    assert next(fact.value for fact in tables.headline(record) if fact.label == "Time") == "30.0 s"


def test_kinds_of_errors_are_bounded(left: Left) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    rows = [{"status": "tool_error", "error": f"{a}{b}"} for a in letters for b in letters]
    record = read_record(left(episodes=rows))
    assert len(record.errors) == 31
    assert sum(kind.count or 0 for kind in record.errors) == len(rows)


def test_the_ledger_says_what_went_in_and_where_it_is(left: Left, row: MakeRow) -> None:
    shares = {"work_share": 0.5, "input_wait_share": 0.5}
    stages = {"groups": {"taken": 80, "emitted": 8, "dropped": {"late": 1}, "lost": {"timed_out": 3}, "retried": 2, **shares}}
    leftovers = {"groups (open groups)": 1, "episodes->groups": 4, "other->more": 2}
    record = read_record(left([row(1)], summary={"status": "suspended", "stages": stages, "leftovers": leftovers}))
    (line,) = tables.ledger(record)
    assert (line.taken, line.emitted, line.lost, line.retried) == (80, 8, {"late": 1, "timed_out": 3}, 2)
    assert line.held == {"groups (open groups)": 1, "episodes->groups": 4}
    assert tables.time_shares(record) == [("groups", [("work", 0, 0.5), ("waits for input", 1, 0.5)])]


def test_a_start_after_the_summary_has_not_ended(left: Left, row: MakeRow) -> None:
    attempts = [{"attempt": 0, "time": "2026-01-01T00:00:00"}, {"attempt": 1, "time": "2026-01-02T00:00:00", "commit": 4}]
    record = read_record(left([row(1)], attempts=attempts, summary={"status": "suspended", "attempts": 1}))
    assert (record.ended, tables.status_of(record)) == (False, "not ended")
    assert tables.starts(record)[1] == (1, "2026-01-02 00:00:00", "commit 4", [])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0.0 s"), (58.24, "58.2 s"), (119.0, "119.0 s"), (750.0, "12.5 min"), (12_240.0, "3.4 h")]
)
def test_times_are_written_in_few_characters(seconds: float, text: str) -> None:
    assert tables.clock(seconds) == text


def test_a_stamp_changes_with_what_is_written(left: Left, row: MakeRow) -> None:
    folder = left([row(1)])
    before = stamp(folder)
    assert stamp(folder) == before
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row(2)) + "\n")
    assert stamp(folder) != before

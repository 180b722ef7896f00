"""Rules of alerts: what is written, what is refused, when one is raised and when it is over."""

import math
from pathlib import Path

import pytest

from graphs.alerts.rules import DEFAULTS, Course, read_rules


def states(text: str, *values: float) -> list[str | None]:
    (rule,) = read_rules([text])
    course = Course(rule)
    return [course.see(value) for value in values]


def test_a_rule_has_a_metric_a_sign_a_bound_and_a_number_of_rows() -> None:
    rules = read_rules(
        ["lag_mean>2", "truncated_share >= 0.3 for 3", "ready_groups rising for 10", "loss not-finite", "fill<1e-2"]
    )
    assert [(rule.metric, rule.word, rule.bound, rule.times) for rule in rules] == [
        ("lag_mean", ">", 2.0, 1), ("truncated_share", ">=", 0.3, 3), ("ready_groups", "rising", 0.0, 10),
        ("loss", "not-finite", 0.0, 1), ("fill", "<", 0.01, 1),
    ]  # fmt: skip


def test_metrics_with_a_part_that_differs_are_known() -> None:
    assert [rule.metric for rule in read_rules(["lost/gsm8k>5", "heldout_pass@4<0.2", "episodes_timed_out>3"])] == [
        "lost/gsm8k", "heldout_pass@4", "episodes_timed_out",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lag_men>2", "got 'lag_men', in --options.alerts 'lag_men>2'; did you mean 'lag_mean'?"),
        ("skipped>2", "expected a metric that is a number, got 'skipped'"),
        ("lag_mean=2", "expected a rule such as 'lag_mean>2', 'truncated_share>0.3 for 3'"),
        ("lag_mean>two", "expected a number behind the sign, got 'two'"),
        ("lag_mean>nan", "expected a number behind the sign, got 'nan'"),
        ("lag_mean>2 for 0", "expected a number of rows from 1, got '0'"),
        ("lag_mean>2 for ever", "expected a number of rows from 1, got 'ever'"),
        ("peak_rss_mb>2", "expected a metric of a step, an evaluation or health, got 'peak_rss_mb'"),
        ("lag_mean", "quote it"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_nearest(text: str, told: str) -> None:
    """S105."""
    with pytest.raises(ValueError, match="expected") as caught:
        read_rules([text])
    assert told in str(caught.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        read_rules(["lag_mean>2", "lag_men>2", "loss>x"])
    assert len(str(caught.value).splitlines()) == 2


def test_a_graph_of_ones_own_may_report_what_is_in_no_list() -> None:
    assert read_rules(["my_share>2"], own=True)[0].metric == "my_share"


def test_it_is_raised_once_after_so_many_rows_in_a_row_and_cleared_once_after_as_many() -> None:
    assert states("lag_mean>2 for 2", 3, 1, 3, 3, 3, 3, 1, 1, 3, 1, 1, 1, 1, 3, 3) == [
        None, None, None, "raised", None, None, None, None, None, None, None, "cleared", None, None, "raised",
    ]  # fmt: skip


def test_a_figure_at_its_bound_is_no_news_again_and_again() -> None:
    assert states("lag_mean>2", *[3, 1] * 10).count("raised") == 1


def test_what_rises_does_so_row_by_row() -> None:
    assert states("ready_groups rising for 3", 1, 2, 3, 3, 4, 5, 6, 7)[-2:] == ["raised", None]
    assert "raised" in states("goodput falling for 2", 3, 2, 1)
    assert "raised" not in states("goodput falling for 2", 3, 2, 2, 1)


def test_what_is_not_a_number_is_above_nothing_and_seen_where_it_is_asked_for() -> None:
    """S43."""
    assert states("loss>2", math.nan) == [None]
    assert states("loss>2", math.inf) == ["raised"]
    assert states("loss not-finite", 1.0, math.nan) == [None, "raised"]
    assert states("loss not-finite", -math.inf) == ["raised"]


def test_what_is_watched_unasked_can_be_read() -> None:
    assert len(read_rules(DEFAULTS)) == len(DEFAULTS)


def test_what_is_watched_unasked_stands_in_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "watching.md").read_text()
    assert [rule for rule in DEFAULTS if f"`{rule}`" not in page] == []

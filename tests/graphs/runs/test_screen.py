"""The live screen: it fits whatever it is given, and what matters least goes first."""

import math

import pytest

from graphs.runs.recent import NodeNow, Recent
from graphs.runs.screen import Problem, Shown, lines, metrics

LINE = ("prompts", "members", "episodes", "groups", "rewards", "reference", "advantages", "batches", "trainer")
BRANCH = ("heldout_tasks", "heldout_attempts", "heldout_episodes", "heldout_rewards", "heldout_groups", "heldout_scores")


def node(name: str) -> NodeNow:
    shares = {"work": 0.25, "input": 0.5, "ticket": 0.1, "pool": 0.1, "output": 0.05}
    return NodeNow(name, 123_456, 12.34, 7, 3, shares)


def full() -> Shown:
    return Shown(
        title="rl: 40 steps of 16 groups of 8, max_lag 1",
        progress="12/40 in 3:20, 7:46 left",
        share=0.3,
        row={
            "loss": 0.123,
            "reward_mean": 0.5,
            "success": 0.5,
            "lag_mean": 0.5,
            "goodput": 0.71,
            "step_s": 2.5,
            "engine_gap": 1e-6,
        },
        health={"open_groups": 12, "half_filled_groups": 3, "oldest_group_s": 12.3, "ready_groups": 4, "loop_lag_ms": 3.2},
        nodes=[node(name) for name in LINE],
        beside=[node(name) for name in BRANCH],
        rewards=[math.sin(at / 20) for at in range(300)],
        heldout=[0.1, 0.3, 0.42],
        statuses={"finished": 4000, "truncated_length": 120, "timed_out": 3},
        limit="episodes: 93 % of the trainer's time waits for them",
        problems=[Problem("episodes", kind, 9 - at, "ValueError: no " + "x" * 300) for at, kind in enumerate("abcdefgh")],
        alerts=[f"rule {at}" for at in range(5)],
        errors="runs/it/errors",
    )


@pytest.mark.parametrize("size", [(80, 23), (160, 49), (40, 10), (200, 70), (20, 4)])
def test_it_fits_the_terminal(size: tuple[int, int]) -> None:
    width, height = size
    drawn = lines(full(), width, height)
    assert len(drawn) <= height
    assert [line.plain for line in drawn if line.cell_len > width] == []


def test_eighty_by_twenty_four_has_the_line_the_curves_the_limit_the_first_errors_and_alerts() -> None:
    text = "\n".join(line.plain for line in lines(full(), 80, 23))
    assert [name for name in (*LINE, "reward ", "held-out", "limit: episodes", "alert: rule 4") if name not in text] == []
    assert "and 6 stages beside the line" in text
    assert "heldout_tasks" not in text
    assert "episodes: 9 x a  ValueError" in text
    assert "and 3 more" in text  # alerts
    assert "lag 0.50" in text


def test_a_larger_terminal_shows_the_branch_and_plots() -> None:
    text = "\n".join(line.plain for line in lines(full(), 160, 49))
    assert "heldout_tasks" in text
    assert "stages beside" not in text
    assert any(0x2800 < ord(character) < 0x2900 for character in text)
    assert f"reward {math.sin(299 / 20):.3f}  (-1.000 to 1.000, 300)" in text


def test_nothing_is_drawn_of_what_is_not_known() -> None:
    drawn = [line.plain.strip() for line in lines(Shown("rl: x", "0 in 0:01"), 80, 23)]
    assert drawn[0] == "rl 0 in 0:01"
    assert not any("episodes:" in line or "reward" in line or "limit:" in line for line in drawn)


def test_the_bar_of_a_node_is_as_long_as_its_time_whatever_the_rounding() -> None:
    drawn = [
        line.plain
        for line in lines(full(), 80, 23)
        if line.plain.startswith(LINE) and "█" in line.plain and "123k" in line.plain
    ]
    assert len(drawn) == len(LINE)
    assert len({line.count("█") + line.count("░") for line in drawn}) == 1


def test_shares_and_rates_are_of_the_last_seconds() -> None:
    """Two summaries of a node that worked for 10 s and then waited for 5: it is all waiting now."""
    from flow._summary import NodeSummary, Summary  # made by a run otherwise

    def summary(seconds: float, work_s: float, taken: int) -> Summary:
        wait_s = seconds - work_s
        shares = {"work": work_s / seconds, "input": wait_s / seconds, "ticket": 0.0, "pool": 0.0, "output": 0.0}
        made = NodeSummary(taken, taken, {}, {}, 0, 0, 0, {}, shares, seconds, 0, 0)
        return Summary("g", None, seconds, {"work": made}, {}, {}, {}, ())

    recent = Recent(window_s=5.0)
    recent.see(summary(2.0, 2.0, 20))
    recent.see(summary(10.0, 10.0, 100))
    recent.see(summary(15.0, 10.0, 110))
    (now,) = recent.nodes()
    assert now.shares == pytest.approx({"work": 0.0, "input": 1.0, "ticket": 0.0, "pool": 0.0, "output": 0.0})
    assert now.per_second == pytest.approx(2.0)
    assert recent.then.seconds == 10.0


def test_text_by_the_name_of_a_figure_is_left_out_and_what_is_not_finite_is_not() -> None:
    assert metrics({"loss": "low", "reward_mean": 0.5, "goodput": math.nan, "lag_mean": None}) == [
        "reward 0.500",
        "goodput nan%",
    ]

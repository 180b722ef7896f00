"""Changes that make steps faster, judged by the held-out score; and the trainings that are judged, at their smallest."""

import math

import pytest

from graphs.bench.gate.experiment import GATE
from graphs.bench.gate.trials import BASE, HARMFUL, HARMLESS, KEPT, changes_of
from graphs.bench.gate.verdict import Trial, difference_interval, judge
from stages.scores import Score, success_interval


@pytest.mark.slow
def test_more_episodes_at_once_change_nothing_and_a_lag_that_nobody_corrects_does():
    """So small that nothing is learned and nothing can be lost: what the scores say is for the benchmark."""
    found = GATE.run(GATE.short, lambda done, total, what: None)
    holds = {claim.what: claim.holds for claim in found.claims}
    assert holds[f"{HARMLESS}: parameters after every step are the same, to the bit"]
    assert holds[f"{HARMLESS}: verdict"]
    assert holds[f"{BASE}: its gate lets it pass"]
    rows = {row["name"]: row for row in found.tables[0].rows}
    assert list(rows) == [BASE, HARMLESS, HARMFUL, KEPT]
    assert [rows[name]["lag"] for name in (BASE, HARMLESS)] == [0, 0]
    assert 1 <= rows[HARMFUL]["lag"] <= GATE.short.max_lag
    versions = [(row["name"], row["version"]) for row in found.tables[1].rows if row["name"] in (BASE, HARMLESS)]
    assert versions == [(name, version) for name in (BASE, HARMLESS) for version in (0, 2, 4)]


def test_the_harmful_change_differs_from_the_harmless_one_in_its_lag_and_in_nothing_that_corrects_it():
    changes = changes_of(GATE.config())
    assert changes[HARMLESS].items() <= changes[HARMFUL].items() <= changes[KEPT].items()
    assert set(changes[HARMFUL]) - set(changes[HARMLESS]) == {"max_lag", "loss"}
    assert set(changes[KEPT]) - set(changes[HARMFUL]) == {"gate"}


def score(right: int, of: int = 256) -> Score:
    low, high = success_interval([1] * right + [0] * (of - right), 1)
    return Score(right / of, low, high, {}, None, of, {"finished": of}, 0, 0.0, 0)


def trial(right: int, step_s: float = 1.0, stopped: str | None = None, of: int = 256) -> Trial:
    return Trial("a", score(right, of), 20, step_s, stopped, (), None, (), 0)


@pytest.mark.parametrize(
    ("base", "changed", "verdict"),
    [
        (trial(230), trial(230), "accepted"),
        (trial(230), trial(240), "accepted"),
        (trial(230), trial(220), "accepted"),
        (trial(230), trial(100), "refused"),
        (trial(230), trial(200), "refused"),
        (trial(230), trial(235, stopped="expected heldout of at least 0.6"), "refused"),
        (trial(14, of=16), trial(13, of=16), "undecided"),
    ],
)
def test_a_change_is_refused_where_it_was_stopped_or_is_worse_beyond_chance(base: Trial, changed: Trial, verdict: str):
    assert judge(base, changed, 0.1).verdict == verdict


def test_a_verdict_says_how_much_faster_and_how_much_worse():
    judged = judge(trial(230, step_s=1.2), trial(100, step_s=0.4), 0.1)
    assert judged.faster == pytest.approx(3.0)
    assert judged.change == pytest.approx(-130 / 256)
    assert judged.why == f"held-out success falls by {-judged.high:.3f} to {-judged.low:.3f}"
    assert "its gate stopped it: too low" in judge(trial(230), trial(230, stopped="too low"), 0.1).why


def test_the_interval_of_a_difference_is_newcombes():
    """56 of 70 and 48 of 80: the first row of table II in Newcombe 1998, method 10: 0.0524 to 0.3339."""
    low, high = difference_interval(score(56, 70), score(48, 80))
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)


def test_equal_scores_differ_by_no_more_than_chance_either_way():
    low, high = difference_interval(score(128), score(128))
    assert low == pytest.approx(-high)
    # The standard error of a difference of two shares of a half, to about the width that Wilson takes off.
    assert high == pytest.approx(1.96 * math.sqrt(2 * 0.25 / 256), rel=0.02)

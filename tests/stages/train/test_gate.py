"""What the gate decides over rows, and what it does about it."""

import math
from typing import Any

import pytest

from stages.records import Status
from stages.train.gate import Gate, GateClosed, GateConfig, breach, fall


def step(number: int, **figures: Any) -> dict[str, Any]:
    sound = {"reward_mean": 0.5, "reward_std": 0.4, "lag_max": 1, "kl": 0.01, "entropy": 1.0, "num_episodes": 10}
    statuses = {f"episodes_{status}": 0 for status in Status} | {"episodes_finished": 10}
    return {"step": number, **sound, **statuses, **figures}


def evaluated(version: int, score: float, low: float = 0.0) -> dict[str, Any]:
    return {"version": version, "heldout": score, "heldout_low": low}


CASES = [
    ({"reward_min": 0.2}, {"reward_mean": 0.1}, ("reward_mean", 0.1, "gate.reward_min", "at least 0.2")),
    ({"reward_max": 0.9}, {"reward_mean": 0.95}, ("reward_mean", 0.95, "gate.reward_max", "at most 0.9")),
    ({"reward_std_min": 0.01}, {"reward_std": 0.0}, ("reward_std", 0.0, "gate.reward_std_min", "at least 0.01")),
    (
        {"truncated_max": 0.3},
        {"episodes_truncated_length": 3, "episodes_truncated_turns": 1},
        ("truncated", 0.4, "gate.truncated_max", "at most 0.3"),
    ),
    ({"lag_max": 2}, {"lag_max": 3}, ("lag_max", 3.0, "gate.lag_max", "at most 2")),
    ({"kl_max": 0.1}, {"kl": 0.2}, ("kl", 0.2, "gate.kl_max", "at most 0.1")),
    ({"entropy_min": 0.3}, {"entropy": 0.2}, ("entropy", 0.2, "gate.entropy_min", "at least 0.3")),
]


@pytest.mark.parametrize(("settings", "figures", "wanted"), CASES)
def test_a_figure_is_out_when_it_was_for_all_the_steps_of_its_patience(settings, figures, wanted):
    config = GateConfig(patience=3, **settings)
    sound, out = step(1), [step(number, **figures) for number in (2, 3, 4)]
    assert breach([sound, *out[:2]], config) is None, "two of three"
    assert breach(out[:2], config) is None, "too few"
    assert breach([out[0], sound, *out[1:]], config) is None, "not in a row"
    found = breach([sound, *out], config)
    assert found is not None
    assert (found.figure, found.value, found.setting, found.bound) == wanted
    assert found.at == 4


@pytest.mark.parametrize(("settings", "figures", "wanted"), CASES)
def test_what_lies_on_its_bound_is_within_it(settings, figures, wanted):
    (bound,) = settings.values()
    named = {"truncated": {"episodes_truncated_turns": 3}}.get(wanted[0], {wanted[0]: bound})
    assert breach([step(1, **named)], GateConfig(patience=1, **settings)) is None


@pytest.mark.parametrize("value", [None, math.nan])
def test_what_was_not_measured_is_not_out(value):
    config = GateConfig(patience=2, reward_min=0.2, kl_max=0.0)
    low = {"reward_mean": 0.0, "kl": None}
    assert breach([step(1, **low), step(2, **{**low, "reward_mean": value})], config) is None
    assert breach([step(1, num_episodes=0)], GateConfig(patience=1, truncated_max=0.0)) is None


def test_without_tolerances_nothing_is_out():
    row = step(1, reward_mean=-1e9, lag_max=99, entropy=0.0, kl=99.0, episodes_truncated_length=10)
    assert breach([row], GateConfig(patience=1)) is None
    assert fall(evaluated(0, 1.0, 1.0), evaluated(2, 0.0), GateConfig()) is None
    assert not GateConfig().needs_heldout


def test_a_held_out_score_may_fall_by_so_much_and_no_more():
    config = GateConfig(heldout_drop=0.125)
    assert fall(None, evaluated(2, 0.0), config) is None
    assert fall(evaluated(2, 0.5), evaluated(4, 0.375), config) is None
    found = fall(evaluated(2, 0.5), evaluated(4, 0.37), config)
    assert found is not None
    assert (found.figure, found.value, found.setting, found.at) == ("heldout", 0.37, "gate.heldout_drop", 4)


def test_a_held_out_score_may_fall_within_the_interval_of_the_best():
    config = GateConfig(heldout_interval=True)
    assert fall(evaluated(2, 0.5, 0.42), evaluated(4, 0.42), config) is None
    found = fall(evaluated(2, 0.5, 0.42), evaluated(4, 0.41), config)
    assert found is not None
    assert found.bound == "at least 0.42, the lower end of the interval of version 2"


def test_slow_decline_is_measured_from_the_best_and_not_from_the_last():
    gate = Gate(GateConfig(heldout_drop=0.1))
    for version, score in ((1, 0.50), (2, 0.45), (3, 0.41)):
        gate.see_heldout(evaluated(version, score))
    with pytest.raises(GateClosed, match=r"expected heldout of at least 0.4, 0.1 below version 1 \(gate.heldout_drop\)"):
        gate.see_heldout(evaluated(4, 0.39))


def test_of_equal_scores_the_last_is_the_best():
    gate = Gate(GateConfig(action="keep_best"))
    for version, score, better in ((0, 0.2, True), (2, 0.4, True), (4, 0.4, True), (6, 0.3, False)):
        assert gate.is_best(evaluated(version, score)) == better
        gate.see_heldout(evaluated(version, score))
    assert gate.best == evaluated(4, 0.4)


def test_the_error_names_figure_tolerance_step_and_the_best_weights():
    gate = Gate(GateConfig(reward_min=0.25, patience=2))
    gate.see_heldout(evaluated(10, 0.6))
    gate.see_step(step(16, reward_mean=0.1))
    with pytest.raises(GateClosed) as caught:
        gate.see_step(step(17, reward_mean=0.05))
    assert str(caught.value) == (
        "expected reward_mean of at least 0.25 (gate.reward_min); got 0.05 at step 17; the best weights are those of version "
        "10; look at metrics.jsonl for what changed, or widen gate.reward_min"
    )


def test_keep_best_goes_on_and_remembers_the_first_breach_of_each_tolerance():
    gate = Gate(GateConfig(action="keep_best", reward_min=0.25, heldout_drop=0.1, patience=1))
    for number in (3, 4, 5):
        gate.see_step(step(number, reward_mean=0.1))
    for version, score in ((2, 0.6), (4, 0.2), (6, 0.1)):
        gate.see_heldout(evaluated(version, score, 0.5))
    assert gate.report() == {
        "action": "keep_best",
        "breaches": {
            "gate.reward_min": "0.1 at step 3",
            "gate.heldout_drop": "0.2 in the evaluation of version 4",
        },
        "best": {"version": 2, "heldout": 0.6, "heldout_low": 0.5},
    }

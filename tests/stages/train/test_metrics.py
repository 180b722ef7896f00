from typing import Any

import numpy as np

from stages.batches.pack import make_batch
from stages.records import Batch, EpisodeRow, Segment, Status
from stages.train.metrics import (
    StepMeter,
    Updated,
    episode_metrics,
    flow_metrics,
    gap_metrics,
    loss_metrics,
    of_the_machine,
    skip_reason,
    update_metrics,
    warning,
)
from stages.train.step import Gap


def row(reward: float | None, status: Status = Status.FINISHED, sampled: int = 10) -> EpisodeRow:
    return EpisodeRow(status=status, reward=reward, num_sampled=sampled, num_turns=2, seconds=0.5)


def batch(advantage: float, *episodes: EpisodeRow) -> Batch:
    mask = np.array([False, True, True, False, True])
    segment = Segment(np.arange(5, dtype=np.int32), mask, np.full(5, advantage, np.float32))
    return make_batch(0, [(segment,)] if advantage else [], episodes=episodes)


def updated(gap: tuple[float, float, float] = (0, 0, 0), **of: Any) -> Updated:
    given = {"num_targets": 1, "divisor": 1.0, "loss": 0.0, "grad_norm": 1.0, "sums": {"entropy": 3.0}, "reason": None, **of}
    return Updated(minibatch=0, gap=Gap(*map(np.float32, gap)), **given)


def test_failures_are_no_zeros_in_the_mean_and_no_holes_in_the_success():
    """S40: 10 episodes, 2 failed, 4 right: success 0.4 and not 0.5; the mean reward is over the 8 scored ones."""
    episodes = [row(1.0)] * 4 + [row(0.0)] * 4 + [row(None, Status.TOOL_ERROR), row(None, Status.TIMED_OUT)]
    got = episode_metrics(episodes)
    assert got["success"] == 0.4
    assert got["reward_mean"] == 0.5
    assert (got["num_episodes"], got["episodes_finished"], got["episodes_tool_error"], got["episodes_timed_out"]) == (
        10,
        8,
        1,
        1,
    )
    assert (got["turns_mean"], got["episode_s_mean"], got["sampled_tokens"]) == (2.0, 0.5, 100)


def test_what_was_not_measured_is_none():
    unscored = episode_metrics([row(None)])
    assert (unscored["reward_mean"], unscored["success"]) == (None, None)
    nothing = episode_metrics([])
    assert {nothing[name] for name in ("reward_mean", "success", "turns_mean", "episode_s_mean", "sampled_tokens")} == {None}
    got = flow_metrics(StepMeter())
    assert (got["goodput"], got["lag_mean"], got["lag_max"], got["no_signal_groups"]) == (None, None, None, None)
    assert loss_metrics([updated(num_targets=0, reason="no_targets")])["entropy"] is None
    empty = update_metrics([updated(num_targets=0, reason="no_targets")])
    assert (empty["loss"], empty["grad_norm"], empty["updates"]) == (None, None, 0)
    assert loss_metrics([updated(num_targets=2)]) == {
        "clip_fraction": None,
        "entropy": 1.5,
        "kl": None,
        "logprob_gap": None,
        "ratio": None,
    }


def test_the_gap_is_a_mean_and_a_maximum_over_fresh_tokens_or_nothing():
    some, none = updated(gap=(4, 0.5, 0.25)), updated()
    assert gap_metrics([some, none]) == {"engine_gap": 0.125, "engine_gap_max": 0.25}
    assert gap_metrics([none]) == {"engine_gap": None, "engine_gap_max": None}


def test_tokens_lags_and_groups_without_signal_are_counted():
    """S74: one of two groups carries no signal; goodput is 3 trained of 40 sampled tokens."""
    meter = StepMeter()
    batches = [batch(1.0, row(1.0), row(0.0)), batch(0.0, row(1.0), row(1.0))]
    for one, lag in zip(batches, (1, 0), strict=True):
        meter.add(one, lag)
    meter.trains(batches)
    meter.updates.append(updated(num_targets=3, reason="exploding"))
    assert flow_metrics(meter)["trained_tokens"] == 0
    meter.updates += [updated(num_targets=3)] * 2
    got = flow_metrics(meter)
    assert (got["num_groups"], got["no_signal_groups"]) == (2, 0.5)
    assert (got["trained_tokens"], got["goodput"]) == (3, 3 / 40)
    assert (got["lag_mean"], got["lag_max"]) == (0.5, 1)
    assert meter.num_tokens == 5


def test_a_step_that_trains_less_than_it_seems_to_says_so():
    """S74, S76."""
    assert skip_reason(5, applied=True, norm=1.0, loss=1.0) is None
    assert skip_reason(0, applied=False, norm=0.0, loss=0.0) == "no_targets"
    assert skip_reason(5, applied=False, norm=np.inf, loss=1.0) == "not_finite"
    assert skip_reason(5, applied=False, norm=1.0, loss=np.nan) == "not_finite"
    assert skip_reason(5, applied=False, norm=9.0, loss=1.0) == "exploding"
    sound = {**update_metrics([updated()]), "bad_steps": None}
    bad = {**sound, **update_metrics([updated(reason="not_finite")])}
    assert warning({**sound, "no_signal_groups": 0.5}, 0.75) is None
    assert warning({**sound, "no_signal_groups": None}, 0.75) is None
    assert warning({**bad, "no_signal_groups": 0.5}, 0.75) == "update skipped: not_finite"
    some = update_metrics([updated(), updated(), updated(reason="exploding"), updated(num_targets=0, reason="no_targets")])
    told = warning({**sound, **some, "bad_steps": "bad-steps/step-000003", "no_signal_groups": 0.5}, 0.75)
    assert told == "2 of 4 updates skipped: no_targets, exploding; headrace replay-batch repeats bad-steps/step-000003"
    # Whatever the rule: a teacher that agrees, or a pass@k at its top, gives none either, with rewards that differ.
    silent = "80% of the groups carry no signal: no token of them has an advantage"
    assert warning({**sound, "no_signal_groups": 0.8}, 0.75) == silent


def test_figures_of_several_updates_are_those_of_all_that_were_applied():
    """Losses by their divisors, sums by their targets; the norm is the largest, and NaN where one is."""
    first = updated(num_targets=2, divisor=10.0, loss=1.0, grad_norm=0.5, sums={"kl": 4.0, "value": 6.0})
    second = updated(num_targets=6, divisor=30.0, loss=3.0, grad_norm=0.25, sums={"kl": 8.0, "value": 2.0})
    bad = updated(num_targets=9, loss=np.nan, grad_norm=7.0, sums={"kl": np.nan}, reason="exploding")
    got = update_metrics([first, second, bad])
    assert (got["loss"], got["grad_norm"], got["updates"]) == ((10 + 90) / 40, 7.0, 2)
    assert (got["skipped"], got["skipped_exploding"], got["skipped_not_finite"]) == ("exploding", 1, 0)
    told = loss_metrics([first, second, bad])
    assert (told["kl"], told["value"], told["ratio"]) == (12 / 8, 1.0, None)
    assert np.isnan(update_metrics([updated(grad_norm=np.nan), first])["grad_norm"])
    assert np.isnan(update_metrics([bad])["loss"])


def test_explained_variance_is_that_of_the_critics_values():
    """Against NumPy over the tokens; without any spread of returns there is none."""
    returns, values = np.array([1.0, 0.0, 2.0, 4.0]), np.array([0.5, 0.5, 1.0, 3.0])
    errors = returns - values
    moments = [returns, returns**2, errors, errors**2]
    names = ("returns", "returns_squared", "value_error", "value_error_squared")
    sums = {name: float(array.sum()) for name, array in zip(names, moments, strict=True)}
    got = loss_metrics([updated(num_targets=4, sums=sums)])["explained_variance"]
    np.testing.assert_allclose(got, 1 - errors.var() / returns.var())
    flat = dict.fromkeys(names, 0.0)
    assert loss_metrics([updated(num_targets=4, sums=flat)])["explained_variance"] is None


def test_figures_of_the_clock_and_of_the_machine_are_told_from_those_of_training(train, batches):
    row = train([batches([2])]).rows[0]
    assert {name for name in row if of_the_machine(name)} == {
        "episode_s_mean", "step_s", "gradient_s", "proximal_s", "update_s", "wait_s", "tokens_per_second",
        "gradient_tokens_per_second", "compilations", "temporary_bytes", "device_bytes", "device_peak_bytes",
    }  # fmt: skip
    assert not any(of_the_machine(name) for name in ("loss", "grad_norm", "turns_mean", "lag_mean", "episodes_finished"))

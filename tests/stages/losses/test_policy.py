import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from stages.losses.policy import PolicyLoss
from stages.losses.ratios import LOG_RATIO_BOUND
from stages.losses.tokens import Needs, Tokens

SETTINGS: Mapping[str, dict[str, Any]] = {
    "default": {},
    "dapo": {"clip_low": 0.2, "clip_high": 0.28},
    "wide": {"clip_low": 1.0, "clip_high": 3.0},
    "dual_clip": {"dual_clip": 1.3},
    "gspo": {"ratio": "sequence", "clip_low": 0.1, "clip_high": 0.15},
    "gspo_token": {"ratio": "sequence_token", "clip_low": 0.1, "clip_high": 0.15},
    "cispo": {"objective": "cispo", "clip_low": 1.0, "clip_high": 0.3},
    "uncorrected": {"against": "proximal"},
    "decoupled": {"against": "proximal", "correction": "truncated", "correction_cap": None},
    "truncated": {"against": "proximal", "correction": "truncated", "correction_cap": 1.1},
    "truncated_sequence": {
        "against": "proximal", "correction": "truncated", "correction_level": "sequence", "correction_cap": 1.1,
    },
    "masked_sequence": {
        "against": "proximal", "correction": "masked", "correction_level": "sequence", "correction_floor": 0.6,
        "correction_cap": 2.5,
    },
    "masked_geometric": {
        "ratio": "sequence", "against": "proximal", "correction": "masked", "correction_level": "geometric",
        "correction_floor": 0.8, "correction_cap": 1.1,
    },
    "masked_behaviour": {"correction": "masked", "correction_cap": 1.2, "correction_floor": 0.8},
    "kl_k1": {"kl_coefficient": 0.3, "kl_estimator": "k1"},
    "kl_k2": {"kl_coefficient": 0.3, "kl_estimator": "k2"},
    "kl_k3": {"kl_coefficient": 0.3},
    "ppo": {"entropy_coefficient": 0.2, "value_coefficient": 0.7, "value_clip": 0.3},
}  # fmt: skip
pytestmark = pytest.mark.slow  # The first test to use an operation compiles it.

each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())


class At:
    """One target of a batch of NumPy arrays, and the targets of its sequence."""

    def __init__(self, batch: dict[str, np.ndarray], held: np.ndarray, row: int, column: int) -> None:
        self._arrays = {**batch, "held": held}
        self._place = row, column
        same = (batch["segments"][row] == batch["segments"][row, column]) & batch["mask"][row]
        self._sequence = [(row, int(t)) for t in np.flatnonzero(same)]

    def __getitem__(self, name: str) -> float:
        return float(self._arrays[name][self._place])

    def gaps(self, new: str, old: str) -> list[float]:
        """Differences of log-probabilities over the sequence."""
        return [float(self._arrays[new][place]) - float(self._arrays[old][place]) for place in self._sequence]


def ratio_of(loss: PolicyLoss, at: At) -> float:
    """PPO, section 3; GSPO, equations 7 and 14."""
    if loss.ratio == "token":
        return math.exp(at["logprobs"] - at[loss.against])
    gaps = at.gaps("logprobs" if loss.ratio == "sequence" else "held", loss.against)
    sequence = math.exp(sum(gaps) / len(gaps))
    return sequence if loss.ratio == "sequence" else sequence * math.exp(at["logprobs"]) / math.exp(at["held"])


def objective_of(loss: PolicyLoss, at: At) -> tuple[float, dict[str, float]]:
    """PPO, equation 7; DAPO, equation 10; dual clip, equation 5; CISPO, equations 4 and 5."""
    lowest, highest = 1 - loss.clip_low, 1 + (loss.clip_high or loss.clip_low)
    ratio, advantage = ratio_of(loss, at), at["advantages"]
    if loss.objective == "cispo":
        weight = math.exp(at["held"] - at[loss.against])
        low, high = weight < lowest, weight > highest
        value = min(max(weight, lowest), highest) * advantage * at["logprobs"]
    else:
        low, high = advantage < 0 and ratio < lowest, advantage > 0 and ratio > highest
        value = min(ratio * advantage, min(max(ratio, lowest), highest) * advantage)
    sums = {"clip_fraction": low or high, "clip_fraction_low": low, "clip_fraction_high": high, "ratio": ratio}
    if loss.dual_clip is not None:
        sums["clip_fraction_dual"] = advantage < 0 and value < loss.dual_clip * advantage
        value = max(value, loss.dual_clip * advantage) if advantage < 0 else value
    return value, sums


def weight_of(loss: PolicyLoss, at: At) -> tuple[float, dict[str, float]]:
    """Decoupled PPO, with the bounds of the settings."""
    if loss.correction == "none":
        return 1.0, {}
    gaps = at.gaps("proximal", "behaviour")
    logs = {"token": at["proximal"] - at["behaviour"], "sequence": sum(gaps), "geometric": sum(gaps) / len(gaps)}
    weight = math.exp(logs[loss.correction_level])
    over = loss.correction_cap is not None and weight > loss.correction_cap
    under = loss.correction_floor is not None and weight < loss.correction_floor
    if over or under:
        weight = loss.correction_cap if loss.correction == "truncated" else 0.0
    factor = float(weight > 0) if loss.against == "behaviour" else weight
    return factor, {"importance_weight": weight, "correction_fraction": over or under}


def penalty_of(loss: PolicyLoss, at: At) -> tuple[float, dict[str, float]]:
    """Schulman 2020, k1 with the gradient of k2; the entropy; the value loss of the code of PPO."""
    penalty, sums = -loss.entropy_coefficient * at["entropy"], {"entropy": at["entropy"]}
    if loss.kl_coefficient:
        apart, start = at["logprobs"] - at["reference"], at["held"] - at["reference"]
        straight = start + start * (at["logprobs"] - at["held"])
        estimates = {"k1": straight, "k2": apart**2 / 2, "k3": math.exp(-apart) - 1 + apart}
        sums["kl_reference"] = estimates[loss.kl_estimator]
        penalty += loss.kl_coefficient * sums["kl_reference"]
    if loss.value_coefficient:
        value, before, wanted = at["values"], at["old_values"], at["returns"]
        near = before + min(max(value - before, -loss.value_clip), loss.value_clip)
        sums["value_loss"] = 0.5 * max((value - wanted) ** 2, (near - wanted) ** 2)
        sums["value_clip_fraction"] = (near - wanted) ** 2 > (value - wanted) ** 2
        sums |= {"returns": wanted, "returns_squared": wanted**2}
        sums |= {"value_error": wanted - value, "value_error_squared": (wanted - value) ** 2}
        penalty += loss.value_coefficient * sums["value_loss"]
    return penalty, sums


def loop(settings: dict[str, Any], batch: dict[str, np.ndarray], held: np.ndarray) -> tuple[float, dict[str, float]]:
    """The loss token by token in float64, from the papers.

    Args:
        settings: of the loss.
        batch: arrays by name.
        held: log-probabilities under the parameters being trained, where the papers stop the gradient.
    """
    loss, total, sums = PolicyLoss(**settings), 0.0, Counter[str]()
    for row, column in zip(*np.nonzero(batch["mask"]), strict=True):
        at = At(batch, held, int(row), int(column))
        objective, clips = objective_of(loss, at)
        weight, corrected = weight_of(loss, at)
        penalty, penalties = penalty_of(loss, at)
        total += at["weights"] * (penalty - weight * objective)
        gap = at["logprobs"] - at["behaviour"]
        sums.update({"kl": math.exp(gap) - 1 - gap, "logprob_gap": abs(gap)} | clips | corrected | penalties)
    return total, dict(sums)


def gradient_of(loss: PolicyLoss, batch: Tokens, *names: str) -> dict[str, np.ndarray]:
    point = {name: getattr(batch, name) for name in names or ("logprobs",)}
    return jax.device_get(jax.grad(lambda point: loss(batch._replace(**point))[0])(point))


def arrays(batch: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in batch._asdict().items()}


@each_setting
def test_the_loss_equals_a_loop_over_tokens(settings, make_tokens):
    batch = make_tokens(0)
    total, sums = PolicyLoss(**settings)(batch)
    expected, expected_sums = loop(settings, arrays(batch), np.asarray(batch.logprobs, np.float64))
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-6)
    assert sums.keys() == expected_sums.keys()
    for name, value in expected_sums.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@each_setting
def test_the_gradient_equals_differences_of_the_loop(settings, make_tokens):
    """In float64, token by token, with what the papers stop the gradient of held where it is."""
    step = 1e-6
    names = ("logprobs", "entropy", "values") if settings.get("value_coefficient") else ("logprobs",)
    with jax.enable_x64(True):
        batch = make_tokens(1, np.float64)
        gradient = gradient_of(PolicyLoss(**settings), batch, *names)
    given = arrays(batch)
    for name in names:
        assert not gradient[name][~given["mask"]].any()
        for at in zip(*np.nonzero(given["mask"]), strict=True):
            ahead, behind = given[name].copy(), given[name].copy()
            ahead[at] += step
            behind[at] -= step
            up, down = (loop(settings, given | {name: moved}, given["logprobs"])[0] for moved in (ahead, behind))
            assert gradient[name][at] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8)


def test_on_policy_the_gradient_is_that_of_reinforce(make_tokens):
    """At a ratio of 1 the gradient with respect to a log-probability is minus its advantage, whatever bounds the ratio."""
    batch = make_tokens(2)
    batch = batch._replace(logprobs=batch.behaviour, proximal=None)
    expected = -np.where(batch.mask, batch.advantages * batch.weights, 0.0)
    corrected = {"against": "proximal", "correction": "masked", "correction_floor": 0.5}
    for settings in ({}, {"ratio": "sequence_token"}, {"objective": "cispo"}, {"dual_clip": 3.0}, corrected):
        found = gradient_of(PolicyLoss(**settings), batch)["logprobs"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=str(settings))


def test_a_sequence_with_one_advantage_and_equal_weights_has_one_gradient_in_both_kinds_of_gspo(make_tokens):
    """GSPO, equations 11 and 18."""
    batch = make_tokens(3)
    number = batch.segments.astype(jnp.float32)
    batch = batch._replace(advantages=number - 1.5, weights=1.0 / (1.0 + number))
    whole, each = (gradient_of(PolicyLoss(ratio=ratio), batch)["logprobs"] for ratio in ("sequence", "sequence_token"))
    np.testing.assert_allclose(whole, each, rtol=1e-4, atol=1e-6)
    assert whole.any()


def test_a_far_off_token_keeps_value_and_gradient_finite(make_tokens):
    batch = make_tokens(4)
    batch = batch._replace(logprobs=jnp.zeros_like(batch.logprobs), behaviour=jnp.full_like(batch.behaviour, -500.0))
    (total, sums), gradient = jax.value_and_grad(lambda lp: PolicyLoss()(batch._replace(logprobs=lp)), has_aux=True)(
        batch.logprobs
    )
    assert np.isfinite(total)
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(sums["ratio"], math.exp(LOG_RATIO_BOUND) * int(batch.mask.sum()), rtol=1e-5)


def test_one_bound_stands_for_both(make_tokens):
    batch = make_tokens(5)
    assert PolicyLoss(clip_low=0.1)(batch)[0] == PolicyLoss(clip_low=0.1, clip_high=0.1)(batch)[0]
    assert PolicyLoss(clip_low=0.1)(batch)[0] != PolicyLoss(clip_low=0.1, clip_high=0.5)(batch)[0]


def test_what_a_loss_needs_follows_from_its_settings():
    assert PolicyLoss().needs == Needs()
    assert PolicyLoss(kl_coefficient=0.1).needs == Needs(reference=True, silent=True)
    assert PolicyLoss(entropy_coefficient=0.1).needs == Needs(silent=True)
    assert PolicyLoss(value_coefficient=0.1).needs == Needs(critic=True, silent=True)
    assert PolicyLoss(aggregation="constant", constant_length=64).needs == Needs("constant", 64)
    assert PolicyLoss(aggregation="constant").needs == Needs("constant")
    assert PolicyLoss(against="proximal").needs == Needs(proximal=True, stale=False)
    assert PolicyLoss(against="proximal", correction="truncated").needs == Needs(proximal=True)
    assert PolicyLoss(correction="masked").needs == Needs(proximal=True)
    assert PolicyLoss(kl_coefficient=0.1, value_coefficient=0.1).needs.arrays == ("reference", "values", "returns")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            {"constant_length": 8},
            "expected constant_length with aggregation='constant' only, got 8 with 'token', in the loss; set both or none",
        ),
        ({"objective": "cispo", "dual_clip": 2.0}, "expected no dual_clip with objective='cispo'"),
        ({"correction": "truncated"}, "expected against='proximal' with correction='truncated', got 'behaviour'"),
        ({"correction_floor": 0.5}, "expected correction_floor with correction='masked' only, got 0.5 with 'none'"),
        ({"correction": "masked", "correction_cap": None}, "expected a correction_cap or a correction_floor"),
        ({"correction": "masked", "correction_floor": 3.0}, "expected correction_floor below correction_cap=2.0, got 3.0"),
        ({"dual_clip": 1.0}, "greater than 1"),
        ({"clip": 0.2}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, fault):
    with pytest.raises(ValidationError) as refused:
        PolicyLoss(**settings)
    assert fault in str(refused.value)


def test_all_faults_are_told_at_once():
    with pytest.raises(ValidationError, match=r"constant_length.*dual_clip.*against='proximal'"):
        PolicyLoss(constant_length=8, objective="cispo", dual_clip=2.0, correction="truncated")

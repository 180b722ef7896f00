import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from stages.losses.preference import PreferenceLoss
from stages.losses.tokens import Needs, Tokens

pytestmark = pytest.mark.slow  # The first test to use an operation compiles it.

SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 0], [1, 1, 1, 1, 2, 2, 0, 0, 0, 0, 0, 0]], np.int32)
LOSSES = {
    "dpo": PreferenceLoss(beta=0.3),
    "cdpo": PreferenceLoss(beta=0.3, label_smoothing=0.2),
    "ipo": PreferenceLoss(beta=0.3, kind="ipo"),
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def pairs(seed: int, dtype: type = np.float32) -> Tokens:
    """Three pairs in two rows, the first token of each segment and padding no targets."""
    random = np.random.default_rng(seed)
    mask = (SEGMENTS > 0) & (np.diff(SEGMENTS, axis=1, prepend=-1) == 0)
    floats = {
        "logprobs": -random.exponential(2.0, SEGMENTS.shape),
        "entropy": random.uniform(0, 2, SEGMENTS.shape),
        "weights": np.ones(SEGMENTS.shape),
        "advantages": np.where(SEGMENTS % 2 == 1, 1.0, -1.0),
        "behaviour": np.full(SEGMENTS.shape, np.nan),
        "reference": -random.exponential(2.0, SEGMENTS.shape),
    }
    return Tokens(
        mask=jnp.asarray(mask),
        segments=jnp.asarray(SEGMENTS),
        **{name: jnp.asarray(array.astype(dtype)) for name, array in floats.items()},
    )


def loop(loss: PreferenceLoss, logprobs: np.ndarray, batch: Tokens) -> tuple[float, dict[str, float]]:
    """Pair by pair from the papers, and what is reported, once for each target of the pair."""
    mask, reference = np.asarray(batch.mask), np.asarray(batch.reference, np.float64)
    total, sums = 0.0, dict.fromkeys(("accuracy", "margin", "reward_chosen", "reward_rejected"), 0.0)
    for row, chosen in ((0, 1), (0, 3), (1, 1)):
        moved = [
            sum(
                logprobs[row, t] - reference[row, t]
                for t in range(mask.shape[1])
                if mask[row, t] and SEGMENTS[row, t] == number
            )
            for number in (chosen, chosen + 1)
        ]
        margin = moved[0] - moved[1]
        if loss.kind == "ipo":
            total += (margin - 1 / (2 * loss.beta)) ** 2
        else:
            agree = 1 / (1 + math.exp(-loss.beta * margin))
            total -= (1 - loss.label_smoothing) * math.log(agree) + loss.label_smoothing * math.log(1 - agree)
        targets = sum(mask[row, t] for t in range(mask.shape[1]) if SEGMENTS[row, t] in (chosen, chosen + 1))
        sums["accuracy"] += targets * (margin > 0)
        sums["margin"] += targets * loss.beta * margin
        sums["reward_chosen"] += targets * loss.beta * moved[0]
        sums["reward_rejected"] += targets * loss.beta * moved[1]
    return total, sums


@each_loss
def test_the_loss_equals_a_loop_over_pairs(loss):
    batch = pairs(0)
    total, sums = loss(batch)
    expected, expected_sums = loop(loss, np.asarray(batch.logprobs, np.float64), batch)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(sums.pop("entropy"), np.asarray(batch.entropy)[batch.mask].sum(), rtol=1e-5)
    assert sums.keys() == expected_sums.keys()
    for name, value in expected_sums.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-5, err_msg=name)


@each_loss
def test_the_gradient_equals_differences_of_the_loop(loss):
    with jax.enable_x64(True):
        batch = pairs(1, np.float64)
        gradient = jax.grad(lambda logprobs: loss(batch._replace(logprobs=logprobs))[0])(batch.logprobs)
        gradient, batch = jax.device_get((gradient, batch))
    for at in np.ndindex(SEGMENTS.shape):
        ends = [np.array(batch.logprobs) for _ in range(2)]
        ends[0][at] += 1e-6
        ends[1][at] -= 1e-6
        up, down = (loop(loss, end, batch)[0] for end in ends)
        assert gradient[at] == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-8)


def test_at_the_reference_a_pair_costs_log_2_and_is_pulled_apart_by_half_of_beta():
    """DPO, the gradient after equation 7: beta * sigmoid(0) on each token of the chosen reply, and its negative."""
    batch = pairs(2)
    batch = batch._replace(logprobs=batch.reference)
    loss = PreferenceLoss(beta=0.2)
    (total, _), gradient = jax.value_and_grad(lambda lp: loss(batch._replace(logprobs=lp)), has_aux=True)(batch.logprobs)
    np.testing.assert_allclose(total, 3 * math.log(2), rtol=1e-6)
    np.testing.assert_allclose(gradient, np.where(batch.mask, -0.1 * np.asarray(batch.advantages), 0.0), rtol=1e-6)


def test_ipo_is_content_where_the_margin_is_one_over_two_beta():
    batch = pairs(3)
    share = jnp.where(batch.segments % 2 == 1, 1.0, 0.0) / jnp.asarray([[2.0] * 6 + [1.0] * 6, [3.0] * 12])
    batch = batch._replace(logprobs=batch.reference + share / (2 * 0.25))
    total, sums = PreferenceLoss(kind="ipo", beta=0.25)(batch)
    assert total == pytest.approx(0.0, abs=1e-9)
    assert sums["margin"] == pytest.approx(0.5 * int(batch.mask.sum()), rel=1e-5)


def test_it_needs_pairs_and_the_reference():
    assert PreferenceLoss().needs == Needs("pair", behaviour=False, reference=True, stale=False)
    with pytest.raises(ValidationError, match=r"expected no label_smoothing with kind='ipo', got 0\.1"):
        PreferenceLoss(kind="ipo", label_smoothing=0.1)

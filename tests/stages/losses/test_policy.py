import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from stages.losses.policy import LOG_RATIO_BOUND, ClippedPolicyLoss, policy_loss
from stages.losses.supervised import supervised_loss
from stages.losses.tokens import Tokens

ROWS, LENGTH = 3, 7


def tokens(seed: int, spread: float = 0.5) -> Tokens:
    random = np.random.default_rng(seed)
    behaviour = -random.exponential(1.0, (ROWS, LENGTH))
    return Tokens(
        logprobs=jnp.asarray(behaviour + spread * random.normal(size=behaviour.shape), jnp.float32),
        entropy=jnp.asarray(random.uniform(0, 2, behaviour.shape), jnp.float32),
        behaviour=jnp.asarray(behaviour, jnp.float32),
        advantages=jnp.asarray(random.normal(size=behaviour.shape), jnp.float32),
        mask=jnp.asarray(random.random(behaviour.shape) < 0.6),
    )


def loop(batch: Tokens, low: float, high: float) -> tuple[float, dict[str, float]]:
    """The loss token by token in float64, from the text of the paper."""
    total, sums = 0.0, dict.fromkeys(("clip_fraction", "kl", "logprob_gap", "ratio", "entropy"), 0.0)
    arrays = (np.asarray(array, np.float64) for array in batch)
    for new, entropy, old, advantage, target in zip(*(array.ravel() for array in arrays), strict=True):
        if not target:
            continue
        ratio = math.exp(new - old)
        clipped = min(max(ratio, 1 - low), 1 + high)
        total -= min(ratio * advantage, clipped * advantage)
        sums["clip_fraction"] += clipped * advantage < ratio * advantage
        sums["kl"] += ratio - 1 - (new - old)
        sums["logprob_gap"] += abs(new - old)
        sums["ratio"] += ratio
        sums["entropy"] += entropy
    return total, sums


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.2, 0.28), (1.0, 3.0)])
def test_the_policy_loss_equals_a_loop_over_tokens(low, high):
    batch = tokens(0)
    total, sums = jax.jit(policy_loss, static_argnums=(1, 2))(batch, low, high)
    expected, expected_sums = loop(batch, low, high)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    assert sums.keys() == expected_sums.keys()
    for name, value in expected_sums.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_gradient_equals_finite_differences():
    batch = tokens(1)

    def total(logprobs: jax.Array) -> jax.Array:
        return policy_loss(batch._replace(logprobs=logprobs), 0.2, 0.3)[0]

    gradient = np.asarray(jax.grad(total)(batch.logprobs))
    step = 1e-4
    for row, column in np.ndindex(ROWS, LENGTH):
        moved = [np.asarray(batch.logprobs, np.float64) for _ in range(2)]
        moved[0][row, column] += step
        moved[1][row, column] -= step
        up, down = (loop(batch._replace(logprobs=m), 0.2, 0.3)[0] for m in moved)
        assert abs(gradient[row, column] - (up - down) / (2 * step)) < 1e-3


def test_sums_of_parts_add_up_to_the_whole():
    batch = tokens(2)
    whole, whole_sums = policy_loss(batch, 0.2, 0.2)
    parts = [policy_loss(Tokens(*(array[row : row + 1] for array in batch)), 0.2, 0.2) for row in range(ROWS)]
    np.testing.assert_allclose(sum(part[0] for part in parts), whole, rtol=1e-5)
    for name in whole_sums:
        np.testing.assert_allclose(sum(part[1][name] for part in parts), whole_sums[name], rtol=1e-5)


@pytest.mark.parametrize("loss", [ClippedPolicyLoss(), supervised_loss], ids=["policy", "supervised"])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_masked_positions_poison_neither_value_nor_gradient(loss, poison):
    """S75: whatever stands outside the mask, value and gradient are those of a batch with zeros there."""
    clean = tokens(3)

    def filled(value: float) -> Tokens:
        return Tokens(*(jnp.where(clean.mask, array, value) for array in clean[:4]), clean.mask)

    def evaluated(batch: Tokens):
        return jax.value_and_grad(lambda logprobs: loss(batch._replace(logprobs=logprobs)), has_aux=True)(batch.logprobs)

    (total, sums), gradient = evaluated(filled(poison))
    (expected, expected_sums), expected_gradient = evaluated(filled(0.0))
    assert total == expected
    assert np.isfinite(total)
    assert sums == expected_sums
    np.testing.assert_array_equal(gradient, expected_gradient)
    assert not gradient[~clean.mask].any()


def test_a_far_off_token_keeps_value_and_gradient_finite():
    batch = tokens(4)._replace(logprobs=jnp.zeros((ROWS, LENGTH)), behaviour=jnp.full((ROWS, LENGTH), -500.0))
    (total, sums), gradient = jax.value_and_grad(lambda b: policy_loss(b, 0.2, 0.2), has_aux=True, allow_int=True)(batch)
    assert np.isfinite(total)
    assert np.isfinite(gradient.logprobs).all()
    np.testing.assert_allclose(sums["ratio"], math.exp(LOG_RATIO_BOUND) * int(batch.mask.sum()), rtol=1e-5)


def test_zero_advantage_means_zero_loss_and_gradient():
    batch = tokens(5)._replace(advantages=jnp.zeros((ROWS, LENGTH)))
    total, gradient = jax.value_and_grad(lambda lp: policy_loss(batch._replace(logprobs=lp), 0.2, 0.2)[0])(batch.logprobs)
    assert total == 0.0
    assert not gradient.any()


def test_on_policy_the_gradient_is_that_of_reinforce():
    """At a ratio of 1 the gradient of the loss with respect to a log-probability is minus its advantage."""
    batch = tokens(6, spread=0.0)
    gradient = jax.grad(lambda lp: policy_loss(batch._replace(logprobs=lp), 0.2, 0.2)[0])(batch.logprobs)
    np.testing.assert_allclose(gradient, -np.where(batch.mask, batch.advantages, 0.0), rtol=1e-6)


def test_one_bound_stands_for_both():
    batch = tokens(7)
    assert ClippedPolicyLoss(clip_low=0.1)(batch)[0] == policy_loss(batch, 0.1, 0.1)[0]
    assert ClippedPolicyLoss(clip_low=0.1, clip_high=0.5)(batch)[0] == policy_loss(batch, 0.1, 0.5)[0]
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        ClippedPolicyLoss(clip=0.2)


def test_the_supervised_loss_is_the_negative_log_likelihood_of_the_targets():
    batch = tokens(8)
    total, sums = supervised_loss(batch)
    np.testing.assert_allclose(total, -np.asarray(batch.logprobs, np.float64)[np.asarray(batch.mask)].sum(), rtol=1e-5)
    np.testing.assert_allclose(sums["entropy"], np.asarray(batch.entropy)[np.asarray(batch.mask)].sum(), rtol=1e-5)
    gradient = jax.grad(lambda lp: supervised_loss(batch._replace(logprobs=lp))[0])(batch.logprobs)
    np.testing.assert_array_equal(gradient, -np.asarray(batch.mask, np.float32))

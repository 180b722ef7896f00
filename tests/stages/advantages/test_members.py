"""What is finite stays finite: advantages of rewards of any size, by every rule."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.advantages.distill import distillation
from stages.advantages.gae import gae
from stages.advantages.grpo import group_advantages
from stages.advantages.members import in_units, is_constant, out_of_units, single
from stages.advantages.pass_at_k import pass_at_k
from stages.advantages.reinforce_pp import returns_to_go, whiten
from stages.advantages.rloo import leave_one_out
from stages.advantages.turns import turn_advantages

FLOAT32_MAX = float(np.finfo(np.float32).max)
EVERYONE = np.ones(4, bool)
SCALED = {
    "grpo": lambda rewards: group_advantages(rewards, EVERYONE),
    "pass_at_k": lambda rewards: pass_at_k(rewards, EVERYONE, 2),
    "turns": lambda rewards: np.concatenate(turn_advantages(np.split(rewards, 4), EVERYONE)),
    "whiten": lambda rewards: whiten(rewards, EVERYONE),
}
"""Rules that divide by a deviation."""
CENTRED = {
    "grpo": (lambda rewards: group_advantages(rewards, EVERYONE, scale=False), 1.0),
    "rloo": (lambda rewards: leave_one_out(rewards, EVERYONE), 4 / 3),
    "turns": (lambda rewards: np.concatenate(turn_advantages(np.split(rewards, 4), EVERYONE, scale=False)), 1.0),
}
"""Rules that only centre, and by how much more than the mean of all."""
sizes = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("rule", SCALED)
@pytest.mark.parametrize("size", [5e-324, 1e-170, 1e-39, 1e39, 1e160, 1.7e308])
@pytest.mark.parametrize("shape", [(1.0, 0.0, 0.0, 0.0), (1.0, -1.0, -1.0, 1.0), (-1.0, 1.0, 0.0, 0.0)])
def test_the_size_of_rewards_changes_no_advantage_that_is_scaled(rule, size, shape):
    """Squares of small rewards vanish and those of large ones overflow, if they are taken as they are."""
    np.testing.assert_allclose(SCALED[rule](np.array(shape) * size), SCALED[rule](np.array(shape)), rtol=1e-6)


@pytest.mark.parametrize("rule", CENTRED)
@given(rewards=st.lists(sizes, min_size=4, max_size=4))
def test_what_is_centred_is_finite_or_refused_with_its_member(rule, rewards):
    """Against plain arithmetic with fractions of the largest reward."""
    function, factor = CENTRED[rule]
    largest = max(map(abs, rewards)) or 1.0
    shares = [reward / largest for reward in rewards]
    expected = [factor * (share - sum(shares) / 4) for share in shares]
    if max(abs(share) for share in expected) * min(largest, 1e300) < 0.99 * FLOAT32_MAX:
        got = function(np.array(rewards))
        if got.any():
            np.testing.assert_allclose(got, np.array(expected) * largest, rtol=1e-6, atol=max(1e-14 * largest, 1e-44))
        else:  # one number, but for the rounding of float32, or too small for it
            assert max(map(abs, expected)) < 1e-6 or largest < 1e-37
    elif max(abs(share) for share in expected) * min(largest, 1e300) > 1.01 * FLOAT32_MAX and np.ptp(shares) > 1e-6:
        with pytest.raises(ValueError, match=r"(?=.* member [0-3]).*at most 3.4e\+38, which float32 holds, got"):
            function(np.array(rewards))


@given(st.lists(sizes, min_size=2, max_size=8))
def test_units_round_nothing_that_counts(values):
    given_values = np.array(values)
    units, exponent = in_units(given_values)
    assert np.abs(units).max() < 1.0
    assert np.abs(units).max() >= 0.5 or not given_values.any()
    np.testing.assert_allclose(out_of_units(units, exponent), given_values, rtol=0, atol=1e-300 * np.abs(given_values).max())
    same = all(math.isclose(value, values[0], rel_tol=1e-8, abs_tol=0.0) for value in values)
    assert is_constant(given_values) or not same


def test_tokens_that_float32_does_not_hold_are_refused_by_every_rule():
    """A sum of two that it holds may be one that it does not."""
    big = 2e38
    two, ends, nothing = np.array([big, big]), np.array([False, True]), np.zeros(2)
    for refused in (
        lambda: returns_to_go(two),
        lambda: returns_to_go(np.array([1e308, 1e308, -1e308])),
        lambda: returns_to_go(np.array([1e308, 1e308]), 0.9),
        lambda: gae(two, nothing, ends, nothing, 1.0, 1.0),
        lambda: gae(np.array([0.0, 1e39]), nothing, ends, nothing, 1.0, 1.0),
        lambda: distillation(np.array([-big]), np.array([big])),
    ):
        with pytest.raises(ValueError, match=r"at most 3.4e\+38, which float32 holds, got .* at token \d"):
            refused()
    assert single(np.array([1e-60, FLOAT32_MAX]), "rule", "place").tolist() == [0.0, FLOAT32_MAX]


def test_best_of_k_is_zero_where_hardly_a_subset_differs():
    """64 of 128 wrong, and the best of 64: one subset in 2e37 fails; rounding over its deviation would be hundreds."""
    rewards = np.repeat([0.0, 1.0], 64)
    assert not pass_at_k(rewards, np.ones(128, bool), 64).any()

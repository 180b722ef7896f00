import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.advantages.grpo import group_advantages


def naive(rewards: list[float], live: list[bool], scale: bool) -> list[float]:
    """Two passes in plain Python over the live members."""
    members = [r for r, alive in zip(rewards, live, strict=True) if alive]
    if len(members) < 2 or max(members) == min(members):
        return [0.0] * len(rewards)
    mean = math.fsum(members) / len(members)
    deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in members) / len(members)) if scale else 1.0
    return [(r - mean) / deviation if alive else 0.0 for r, alive in zip(rewards, live, strict=True)]


members = st.lists(st.tuples(st.integers(-8, 8).map(lambda n: n / 4), st.booleans()), max_size=12)


@given(members, st.booleans())
def test_it_equals_a_loop(pairs, scale):
    rewards, live = [r for r, _ in pairs], [alive for _, alive in pairs]
    got = group_advantages(np.array(rewards), np.array(live, bool), scale)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.array(naive(rewards, live, scale)), rtol=1e-6, atol=1e-7)


def test_a_known_group():
    """Rewards 1, 0, 0, 0: mean 1/4, deviation sqrt(3)/4, so sqrt(3) and three times -1/sqrt(3). S69: bounded by sqrt(n - 1)."""
    got = group_advantages(np.array([1.0, 0, 0, 0]), np.ones(4, bool))
    np.testing.assert_allclose(got, [3**0.5, *[-(3**-0.5)] * 3], rtol=1e-6)


def test_a_group_of_one_or_none_gets_zero():
    """S68: no NaN from the deviation of one member."""
    assert group_advantages(np.array([1.0]), np.array([True])).tolist() == [0.0]
    assert group_advantages(np.array([1.0, 5.0]), np.array([False, True])).tolist() == [0.0, 0.0]
    assert group_advantages(np.array([]), np.array([], bool)).tolist() == []


@pytest.mark.parametrize(
    "rewards",
    [
        np.full(8, 0.1, np.float32),
        np.array([0.1 + 0.2, 0.3, 0.3]),
        np.array([np.float32(0.1), 0.1, 0.1]),
        np.full(5, 1e9) + np.array([0, 1e-6, 0, 0, 0]),
        np.zeros(3),
        np.full(3, -2.0),
    ],
)
def test_a_group_that_is_constant_up_to_rounding_gets_zero(rewards):
    """S69, S72: rounding noise is not divided by its own tiny deviation."""
    assert not group_advantages(rewards, np.ones(len(rewards), bool)).any()


def test_small_rewards_that_differ_are_not_taken_for_a_constant():
    assert group_advantages(np.array([1e-9, 2e-9]), np.ones(2, bool)).tolist() == [-1.0, 1.0]


def test_members_that_are_not_live_shift_nothing():
    """S70: rewards 1, 1, 0, 0 with the second not live are centred on the three live ones; its own reward may be NaN."""
    live = np.array([True, False, True, True])
    expected = group_advantages(np.array([1.0, 0, 0]), np.ones(3, bool))
    got = group_advantages(np.array([1.0, math.nan, 0, 0]), live)
    assert got.tolist() == [expected[0], 0.0, expected[1], expected[2]]


def test_a_live_member_without_a_finite_reward_is_an_error():
    with pytest.raises(ValueError, match="expected finite rewards of live members"):
        group_advantages(np.array([1.0, math.nan]), np.ones(2, bool))


def test_shapes_that_differ_are_an_error():
    """S71: several groups cannot be passed at once."""
    with pytest.raises(ValueError, match="call it once for each group"):
        group_advantages(np.zeros((2, 4)), np.ones((2, 4), bool))

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.advantages.grpo import group_advantages
from stages.advantages.pass_at_k import pass_at_k

rewards = st.lists(st.integers(-4, 4).map(lambda n: n / 4), min_size=1, max_size=7)


def naive(rewards: list[float], k: int) -> list[float]:
    """Every subset in turn."""
    subsets = list(itertools.combinations(range(len(rewards)), k))
    best = [max(rewards[place] for place in subset) for subset in subsets]
    if len(set(best)) < 2:
        return [0.0] * len(rewards)
    mean = sum(best) / len(best)
    deviation = math.sqrt(sum((b - mean) ** 2 for b in best) / len(best))
    held = [[b for b, subset in zip(best, subsets, strict=True) if place in subset] for place in range(len(rewards))]
    return [(sum(own) / len(own) - mean) / deviation for own in held]


@given(rewards, st.integers(1, 4))
def test_it_equals_a_loop_over_all_subsets(rewards, k):
    got = pass_at_k(np.array(rewards), np.ones(len(rewards), bool), k)
    np.testing.assert_allclose(got, naive(rewards, k), rtol=1e-5, atol=1e-6)


@given(rewards)
def test_with_one_of_one_it_is_grpo(rewards):
    live = np.ones(len(rewards), bool)
    np.testing.assert_allclose(
        pass_at_k(np.array(rewards), live, 1), group_advantages(np.array(rewards), live), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("right", "n", "k"), [(1, 8, 4), (3, 8, 2), (4, 16, 8)])
def test_rewards_of_0_and_1_give_the_closed_form_of_the_paper(right, n, k):
    """Chen et al. 2025: mean, deviation and both advantages from three binomials."""
    wrong = n - right
    mean = 1 - math.comb(wrong, k) / math.comb(n, k)
    deviation = math.sqrt(mean * (1 - mean))
    positive = (1 - mean) / deviation
    negative = (1 - mean - math.comb(wrong - 1, k - 1) / math.comb(n - 1, k - 1)) / deviation
    got = pass_at_k(np.array([1.0] * right + [0.0] * wrong), np.ones(n, bool), k)
    np.testing.assert_allclose(got, [positive] * right + [negative] * wrong, rtol=1e-6)


def test_a_group_in_which_every_subset_has_a_best_one_says_nothing():
    assert not pass_at_k(np.array([1.0, 1.0, 1.0, 0.0]), np.ones(4, bool), 2).any()
    assert not pass_at_k(np.array([0.1 + 0.2, 0.3, 0.3, 0.0]), np.ones(4, bool), 2).any()


def test_too_few_live_members_say_nothing_and_others_are_not_looked_at():
    """S70: with two live members there is one pair."""
    assert not pass_at_k(np.array([1.0, 0.0, math.nan]), np.array([True, True, False]), 2).any()


def test_a_k_below_one_is_refused():
    with pytest.raises(ValueError, match="expected k of at least 1, got 0"):
        pass_at_k(np.zeros(3), np.ones(3, bool), 0)

import numpy as np
import pytest

from stages.advantages.gae import gae


def naive(rewards, values, ends, bootstraps, discount, gae_lambda):
    """Token by token from the back, in float64."""
    advantages, later, following = np.zeros(len(rewards)), 0.0, 0.0
    for place in reversed(range(len(rewards))):
        if ends[place]:
            later, following = 0.0, bootstraps[place]
        delta = rewards[place] + discount * following - values[place]
        later = delta + discount * gae_lambda * later
        advantages[place], following = later, values[place]
    return advantages


@pytest.mark.slow
@pytest.mark.parametrize(("discount", "gae_lambda"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("lengths", [[1], [3, 1, 5], [200, 400]])
def test_the_scan_equals_a_loop(discount, gae_lambda, lengths):
    """Whatever the number of trajectories: nothing passes from one to the one before."""
    random = np.random.default_rng(0)
    total = sum(lengths)
    rewards, values = random.normal(size=total), random.normal(size=total).astype(np.float32)
    ends = np.zeros(total, bool)
    ends[np.cumsum(lengths) - 1] = True
    bootstraps = np.where(ends, random.normal(size=total), np.nan)
    advantages, returns = gae(rewards, values, ends, bootstraps, discount, gae_lambda)
    wanted = naive(rewards, values, ends, bootstraps, discount, gae_lambda)
    np.testing.assert_allclose(advantages, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returns, wanted + values, rtol=1e-4, atol=1e-4)


def test_a_known_trajectory():
    """Two tokens, a reward of 1 at the end, values of a half: with lambda 1 the return is 1, whatever the critic says."""
    ends = np.array([False, True])
    advantages, returns = gae(np.array([0.0, 1.0]), np.full(2, 0.5), ends, np.zeros(2), 1.0, 1.0)
    assert advantages.tolist() == [0.5, 0.5]
    assert returns.tolist() == [1.0, 1.0]


def test_nothing_at_all_gives_nothing():
    advantages, returns = gae(np.zeros(0), np.zeros(0), np.zeros(0, bool), np.zeros(0), 1.0, 1.0)
    assert (advantages.shape, returns.shape) == ((0,), (0,))

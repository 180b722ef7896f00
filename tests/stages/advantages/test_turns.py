import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.advantages.grpo import group_advantages
from stages.advantages.turns import turn_advantages

quarters = st.integers(-8, 8).map(lambda n: n / 4)
groups = st.lists(st.tuples(st.lists(quarters, min_size=1, max_size=4), st.booleans()), max_size=6)


@given(groups, st.booleans())
def test_it_equals_a_loop_in_which_each_member_has_one_vote(group, scale):
    live = [returns for returns, alive in group if alive]
    votes = [(g, 1 / len(returns)) for returns in live for g in returns]
    mean = math.fsum(g * share for g, share in votes) / max(len(live), 1)
    deviation = math.sqrt(math.fsum(share * (g - mean) ** 2 for g, share in votes) / max(len(live), 1)) if scale else 1.0
    silent = len(live) < 2 or len({g for g, _ in votes}) < 2
    got = turn_advantages([np.array(returns) for returns, _ in group], np.array([alive for _, alive in group], bool), scale)
    for (returns, alive), array in zip(group, got, strict=True):
        wanted = [(g - mean) / deviation if alive and not silent else 0.0 for g in returns]
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)


@given(st.lists(st.tuples(quarters, st.integers(1, 4)), max_size=6))
def test_members_whose_turns_all_have_one_return_get_what_grpo_gives(members):
    """However many turns each took: a long episode has one vote too."""
    rewards, live = np.array([reward for reward, _ in members]), np.ones(len(members), bool)
    got = turn_advantages([np.full(turns, reward) for reward, turns in members], live)
    for array, wanted in zip(got, group_advantages(rewards, live), strict=True):
        np.testing.assert_allclose(array, np.full(len(array), wanted), rtol=1e-5, atol=1e-6)


def test_what_is_not_a_group_is_refused():
    with pytest.raises(ValueError, match="expected returns of 2 members, got 1"):
        turn_advantages([np.zeros(1)], np.ones(2, bool))
    with pytest.raises(ValueError, match="expected finite returns of each live member"):
        turn_advantages([np.zeros(0), np.ones(1)], np.ones(2, bool))

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.advantages.rloo import leave_one_out

members = st.lists(st.tuples(st.integers(-8, 8).map(lambda n: n / 4), st.booleans()), max_size=10)


@given(members)
def test_it_equals_a_loop_over_the_others(pairs):
    rewards, live = [r for r, _ in pairs], [alive for _, alive in pairs]
    wanted = []
    for place, (reward, alive) in enumerate(pairs):
        others = [r for at, (r, lives) in enumerate(pairs) if lives and at != place]
        wanted.append(reward - math.fsum(others) / len(others) if alive and others else 0.0)
    got = leave_one_out(np.array(rewards), np.array(live, bool))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


def test_it_stays_bounded_where_the_others_agree():
    """S69: rewards 1, 0, 0, 0 give 1 and -1/3, and 0.1 eight times in 32 bits gives nothing."""
    np.testing.assert_allclose(leave_one_out(np.array([1.0, 0, 0, 0]), np.ones(4, bool)), [1, *[-1 / 3] * 3], rtol=1e-6)
    assert not leave_one_out(np.full(8, 0.1, np.float32), np.ones(8, bool)).any()

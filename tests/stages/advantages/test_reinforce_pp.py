import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.advantages.reinforce_pp import returns_to_go, whiten

numbers = st.lists(st.integers(-8, 8).map(lambda n: n / 4), max_size=12)


@given(numbers, st.sampled_from([1.0, 0.9, 0.0]))
def test_the_return_to_go_equals_a_double_loop(rewards, discount):
    wanted = [
        math.fsum(discount ** (later - place) * rewards[later] for later in range(place, len(rewards)))
        for place in range(len(rewards))
    ]
    np.testing.assert_allclose(returns_to_go(np.array(rewards), discount), wanted, rtol=1e-5, atol=1e-6)


@given(st.lists(st.tuples(st.integers(-8, 8).map(lambda n: n / 4), st.booleans()), max_size=20))
def test_whitened_values_have_mean_0_and_deviation_1_over_the_mask(pairs):
    values, mask = np.array([v for v, _ in pairs], float), np.array([m for _, m in pairs], bool)
    got = whiten(np.where(mask, values, np.nan), mask)
    chosen = values[mask].tolist()
    if len(set(chosen)) < 2:
        assert not got.any()
        return
    mean = math.fsum(chosen) / len(chosen)
    deviation = math.sqrt(math.fsum((c - mean) ** 2 for c in chosen) / len(chosen))
    np.testing.assert_allclose(got[mask], [(c - mean) / deviation for c in chosen], rtol=1e-5, atol=1e-6)
    assert not got[~mask].any()


def test_values_that_are_one_up_to_rounding_whiten_to_zero():
    """S69: also where the rounding would be all there is to divide by."""
    values = np.array([[0.1, np.float32(0.1)], [0.1, 0.1]])
    assert not whiten(values, np.ones((2, 2), bool)).any()
    assert not whiten(np.array([3.0]), np.array([True])).any()


def test_what_cannot_be_whitened_is_refused():
    with pytest.raises(ValueError, match="expected values and mask of one shape"):
        whiten(np.zeros(3), np.ones(2, bool))
    with pytest.raises(ValueError, match="expected finite values in the mask"):
        whiten(np.array([1.0, math.nan]), np.ones(2, bool))

import math

import numpy as np
import pytest

from stages.advantages.kl import kl_estimate


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_in_expectation_over_the_policy_it_is_the_divergence(estimator):
    """Summed over a vocabulary of three with the policy's own probabilities, against the definition."""
    policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    wanted = sum(p * math.log(p / q) for p, q in zip(policy, reference, strict=True))
    got = policy @ kl_estimate(np.log(policy), np.log(reference), estimator)
    assert math.isclose(got, wanted, rel_tol=1e-9)


def test_each_estimator_equals_its_formula():
    behaviour, reference = np.array([-1.0, -2.0, -0.5]), np.array([-1.5, -1.0, -0.5])
    ratio = [math.exp(q - p) for p, q in zip(behaviour, reference, strict=True)]
    np.testing.assert_allclose(kl_estimate(behaviour, reference, "k1"), [-math.log(r) for r in ratio], atol=1e-12)
    np.testing.assert_allclose(kl_estimate(behaviour, reference, "k2"), [math.log(r) ** 2 / 2 for r in ratio], atol=1e-12)
    np.testing.assert_allclose(kl_estimate(behaviour, reference, "k3"), [r - 1 - math.log(r) for r in ratio], atol=1e-12)


def test_a_token_the_reference_would_always_say_does_not_outgrow_all_numbers():
    assert np.isfinite(kl_estimate(np.array([-1e4]), np.array([0.0]), "k3")).all()

"""What the distance to a reference model costs, token by token: taken off the reward, before any statistics. Pure NumPy."""

from typing import Literal

import numpy as np

KlEstimator = Literal["k1", "k2", "k3"]
"""``k1``: the difference of the log-probabilities, unbiased. ``k2``: half its square. ``k3``: unbiased and never negative."""


def kl_estimate(behaviour: np.ndarray, reference: np.ndarray, estimator: KlEstimator) -> np.ndarray:
    """An estimate of KL(behaviour || reference) at each sampled token, in nats.

    Args:
        behaviour: float [S]: log-probability of the sampled token under the policy that sampled it.
        reference: float [S]: the same under the reference model.
        estimator: see ``KlEstimator``.

    Returns:
        float64 [S]

    Source: Schulman 2020, "Approximating KL Divergence": k1 = -log r, k2 = (log r)^2 / 2, k3 = r - 1 - log r, with
        r = reference / behaviour. In the reward: Ouyang et al. 2022, "InstructGPT", equation 2 (k1).
        We differ: log r of k3 is held below 20, beyond which one token would outweigh all others.
    """
    log_ratio = np.asarray(reference, np.float64) - np.asarray(behaviour, np.float64)
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return 0.5 * log_ratio**2
    bounded = np.minimum(log_ratio, 20.0)
    return np.expm1(bounded) - bounded

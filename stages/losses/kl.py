"""Estimates of the divergence from a reference model, to be added to a loss. Pure.

What such a term does is decided by its *gradient*, which need not be that of what its value estimates. With d = log p(token) -
log reference(token), of tokens drawn from p, the gradients are (a factor) times the gradient of log p:

* the plain k1, d, has the factor 1. Its mean over p is 0: it is noise and nothing else. Not offered.
* ``k1`` here has the value d, unbiased, and the factor d: the gradient of KL(p || reference) of this token.
* ``k2`` has the value d^2 / 2, biased where p and the reference are far apart, and the same factor d: the same gradient.
* ``k3`` has the value exp(-d) - 1 + d, unbiased, never negative and of little variance, and the factor 1 - exp(-d), whose mean
  is the gradient of KL(reference || p), the other way round. Where d is small, both agree.

All three see one token at a time: how a token changes what comes after it has no part in the gradient. A penalty in the reward
does, and is for the advantages. Nor is there a ratio: of tokens that older weights sampled, the means are over those.

Axes: B rows, T length of a row.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from stages.losses.ratios import LOG_RATIO_BOUND

KlEstimator = Literal["k1", "k2", "k3"]


def reference_kl(logprobs_BT: jax.Array, reference_BT: jax.Array, estimator: KlEstimator) -> jax.Array:
    """One estimate for each token, nats [B, T].

    Args:
        logprobs_BT: under the parameters being trained; 0 outside the mask.
        reference_BT: under the reference; 0 outside the mask.
        estimator: see the head of this file.

    Source: Schulman 2020, "Approximating KL Divergence"; gradients: Liu et al. 2025, "Rethinking KL Regularization in RLHF"
        (arXiv 2510.01555), and Shah et al. 2025, "A Comedy of Estimators" (arXiv 2512.21852). ``k3`` is the penalty of GRPO
        (Shao et al. 2024, "DeepSeekMath", equation 4).
        We differ: ``k1`` carries the gradient of ``k2``; in ``k3`` a token that the reference finds more than exp(20) times as
        likely gives no gradient, where the exponential would overflow.
    """
    apart_BT = logprobs_BT - reference_BT
    if estimator == "k1":
        factor_BT = jax.lax.stop_gradient(apart_BT)
        return factor_BT + factor_BT * (logprobs_BT - jax.lax.stop_gradient(logprobs_BT))
    if estimator == "k2":
        return 0.5 * jnp.square(apart_BT)
    apart_BT = jnp.maximum(apart_BT, -LOG_RATIO_BOUND)
    return jnp.expm1(-apart_BT) + apart_BT

"""Ratios of the probability of what was sampled, now and then: of a token, or of its sequence. Pure.

Axes: B rows, T length of a row.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from stages.losses.sequences import sequence_means

RatioLevel = Literal["token", "sequence", "sequence_token"]
"""``token``: each token has its own ratio (PPO). ``sequence``: all tokens have the geometric mean of their sequence's (GSPO).
``sequence_token``: the value is that of the sequence, the gradient that of the token (GSPO-token)."""

LOG_RATIO_BOUND = 20.0
"""Largest magnitude of a log ratio before the exponential. Beyond it the ratio would reach infinity, and infinity times the
zero gradient of a clipped branch is NaN."""


def bounded(log_ratio_BT: jax.Array) -> jax.Array:
    """A log ratio within ``LOG_RATIO_BOUND``; beyond it there is no gradient."""
    return jnp.clip(log_ratio_BT, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def likelihood_ratio(
    logprobs_BT: jax.Array, old_BT: jax.Array, mask_BT: jax.Array, segments_BT: jax.Array, level: RatioLevel
) -> jax.Array:
    """Probability under the parameters being trained over that under older ones, at each token.

    Args:
        logprobs_BT: log-probabilities under the parameters being trained; 0 outside the mask.
        old_BT: under the older ones; no gradient is taken through it. 0 outside the mask.
        mask_BT: bool: targets.
        segments_BT: int: segment numbers.
        level: see ``RatioLevel``.

    Returns:
        float [B, T]; 1 where there is no target.

    Source: ``token``: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", section 3. ``sequence``: Zheng et al.
        2025, "Group Sequence Policy Optimization" (arXiv 2507.18071), equation 7. ``sequence_token``: the same, equation 14.
        We differ: a sequence is a segment, so an episode of several rows has several ratios, where the paper has one for each
        response; log ratios are held within 20.
    """
    log_ratio_BT = logprobs_BT - jax.lax.stop_gradient(old_BT)
    if level == "token":
        return jnp.exp(bounded(log_ratio_BT))
    mean_BT = jnp.where(mask_BT, sequence_means(log_ratio_BT, mask_BT, segments_BT), 0.0)
    if level == "sequence_token":
        mean_BT = jax.lax.stop_gradient(mean_BT) + logprobs_BT - jax.lax.stop_gradient(logprobs_BT)
    return jnp.exp(bounded(mean_BT))

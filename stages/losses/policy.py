"""The clipped policy loss on behaviour log-probabilities. A pure function and the frozen settings that feed it.

The ratio is taken against the distribution that *sampled* the token, as recorded by the engine; there is no second forward pass
of an "old" policy. So staleness and any difference of engine and trainer are both inside the ratio, and bounded by the clip.

Axes: B rows, T length of a row.
"""

import jax
import jax.numpy as jnp
from pydantic import BaseModel, ConfigDict, Field

from stages.losses.tokens import Needs, Sums, Tokens, masked_sum

LOG_RATIO_BOUND = 20.0
"""Largest magnitude of a log ratio before the exponential. Beyond it the ratio would reach infinity, and infinity times the
zero gradient of a clipped branch is NaN."""


def policy_loss(tokens: Tokens, clip_low: float, clip_high: float) -> tuple[jax.Array, Sums]:
    """Sum over targets of ``-min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)``.

    Args:
        tokens: see ``Tokens``; entries where the mask is False are not looked at.
        clip_low: how far the ratio may fall below 1 before a token stops giving a gradient, in (0, 1].
        clip_high: how far it may rise above 1, above 0.

    Returns:
        The summed loss, and the sums ``clip_fraction`` (targets whose clip binds), ``kl`` (k3 estimate of KL(behaviour ||
        current)), ``logprob_gap`` (absolute difference of the two log-probabilities), ``ratio`` and ``entropy``.

    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7; two bounds as in Yu et al. 2025,
        "DAPO", equation 10; k3 from Schulman 2020, "Approximating KL Divergence".
        We differ: behaviour log-probabilities in place of a recomputed old policy; the log ratio is held within 20; values are
        summed, and who calls divides once by the number of target tokens of the whole step (token mean, as DAPO), where GRPO
        takes the mean of each reply first.
    """
    mask_BT = tokens.mask
    # Masked before the arithmetic, not after: NaN * 0 is NaN, in the value and in the gradient.
    advantages_BT = jnp.where(mask_BT, tokens.advantages, 0.0)
    log_ratio_BT = jnp.where(mask_BT, tokens.logprobs, 0.0) - jnp.where(mask_BT, tokens.behaviour, 0.0)
    bounded_BT = jnp.clip(log_ratio_BT, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    ratio_BT = jnp.exp(bounded_BT)
    free_BT = ratio_BT * advantages_BT
    clipped_BT = jnp.clip(ratio_BT, 1.0 - clip_low, 1.0 + clip_high) * advantages_BT
    sums = {
        "clip_fraction": masked_sum((clipped_BT < free_BT).astype(jnp.float32), mask_BT),
        "kl": masked_sum(jnp.expm1(bounded_BT) - bounded_BT, mask_BT),
        "logprob_gap": masked_sum(jnp.abs(log_ratio_BT), mask_BT),
        "ratio": masked_sum(ratio_BT, mask_BT),
        "entropy": masked_sum(tokens.entropy, mask_BT),
    }
    weights_BT = jnp.where(mask_BT, tokens.weights, 0.0)
    return -masked_sum(jnp.minimum(free_BT, clipped_BT) * weights_BT, mask_BT), jax.lax.stop_gradient(sums)


class ClippedPolicyLoss(BaseModel):
    """``policy_loss`` with its bounds: a ``Loss``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clip_low: float = Field(default=0.2, gt=0.0, le=1.0)
    """How far the ratio may fall below 1 before a token with a negative advantage stops giving a gradient."""
    clip_high: float | None = Field(default=None, gt=0.0)
    """How far it may rise above 1 for a token with a positive advantage; ``None`` takes ``clip_low``."""

    @property
    def needs(self) -> Needs:
        """Behaviour log-probabilities; the clip bounds what stale ones do."""
        return Needs()

    def __call__(self, tokens: Tokens) -> tuple[jax.Array, Sums]:
        """Summed loss and sums to report; see ``policy_loss``."""
        return policy_loss(tokens, self.clip_low, self.clip_low if self.clip_high is None else self.clip_high)

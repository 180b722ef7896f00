"""The objective of CISPO: the ratio is clipped as a weight, so that no token loses its gradient. Pure.

Axes: B rows, T length of a row.
"""

import jax
import jax.numpy as jnp

from stages.losses.clipped import Objective


def cispo_objective(
    ratio_BT: jax.Array, logprobs_BT: jax.Array, advantages_BT: jax.Array, clip_low: float, clip_high: float
) -> Objective:
    """``stop_gradient(clip(ratio, 1 - clip_low, 1 + clip_high)) * A * logprob``.

    Its value is of no use by itself; its gradient is that of REINFORCE under a bounded importance weight.

    Args:
        ratio_BT: see ``likelihood_ratio``; no gradient is taken through it.
        logprobs_BT: under the parameters being trained; 0 outside the mask.
        advantages_BT: 0 outside the mask.
        clip_low: how far the weight may fall below 1; 1 sets no lower bound, as the paper does in its experiments.
        clip_high: how far it may rise above 1.

    Source: MiniMax 2025, "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention" (arXiv 2506.13585),
        equations 4 and 5. We differ: the weight is taken against whatever distribution the loss says, not always the one
        before the update; ``low`` and ``high`` tell which weights were clipped, whatever the advantage.
    """
    weight_BT = jax.lax.stop_gradient(jnp.clip(ratio_BT, 1.0 - clip_low, 1.0 + clip_high))
    return Objective(weight_BT * advantages_BT * logprobs_BT, ratio_BT < 1.0 - clip_low, ratio_BT > 1.0 + clip_high)

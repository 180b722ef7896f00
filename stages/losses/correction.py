"""Importance weights between what sampled a token and the parameters a step begins with. Pure.

They make good for stale weights and for an engine that computes otherwise than the trainer, and leave the clip of the ratio to
bound what the step itself changes.

Axes: B rows, T length of a row.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from stages.losses.ratios import bounded
from stages.losses.sequences import sequence_means, sequence_sums, spread

CorrectionKind = Literal["truncated", "masked"]
"""``truncated``: a weight above the cap is the cap. ``masked``: a weight out of bounds is 0."""
CorrectionLevel = Literal["token", "sequence", "geometric"]
"""``token``: each token has its own weight. ``sequence``: all have the product over their sequence, the true importance weight
of a reply, which for a long one is far from 1 whatever the cause. ``geometric``: all have the geometric mean, which does not
grow with the length, wants bounds close to 1, and is an importance weight of nothing."""


class Corrected(NamedTuple):
    """Importance weights. Arrays [B, T]."""

    weight: jax.Array
    """float: without a gradient; 1 where there is no target."""
    out: jax.Array
    """bool: truncated or masked."""


def importance_weight(
    proximal_BT: jax.Array,
    behaviour_BT: jax.Array,
    mask_BT: jax.Array,
    segments_BT: jax.Array,
    kind: CorrectionKind,
    level: CorrectionLevel,
    cap: float | None,
    floor: float | None,
) -> Corrected:
    """Probability under the parameters at the step's beginning over that under what sampled the token, bounded.

    Args:
        proximal_BT: log-probabilities under the former; 0 outside the mask.
        behaviour_BT: under the latter; 0 outside the mask.
        mask_BT: bool: targets.
        segments_BT: int: segment numbers.
        kind: see ``CorrectionKind``.
        level: see ``CorrectionLevel``.
        cap: largest weight; ``None`` for any. With ``truncated`` that is the plain importance weight.
        floor: smallest weight, with ``masked``; ``None`` for any.

    Source: the weight of the decoupled objective: Hilton et al. 2021, "Batch size-invariance for policy optimization" (arXiv
        2110.00641); Fu et al. 2025, "AReaL" (arXiv 2505.24298), section 5.2. Truncated: Espeholt et al. 2018, "IMPALA" (arXiv
        1802.01561), the rho of equation 1. Masked, with both bounds: IcePop, Ling Team 2025, "Every Step Evolves" (arXiv
        2510.18855).
        We differ: tokens that are masked stay in the divisor of the loss; log weights are held within 20 before the bounds;
        a sequence is a segment; the weight multiplies the policy's objective alone, not KL, entropy or value loss.
    """
    log_weight_BT = proximal_BT - behaviour_BT
    if level == "sequence":
        log_weight_BT = spread(sequence_sums(log_weight_BT, mask_BT, segments_BT), segments_BT)
    if level == "geometric":
        log_weight_BT = sequence_means(log_weight_BT, mask_BT, segments_BT)
    weight_BT = jax.lax.stop_gradient(jnp.exp(bounded(jnp.where(mask_BT, log_weight_BT, 0.0))))
    above_BT = weight_BT > cap if cap is not None else jnp.zeros_like(mask_BT)
    if kind == "truncated":
        return Corrected(weight_BT if cap is None else jnp.minimum(weight_BT, cap), above_BT)
    out_BT = above_BT if floor is None else above_BT | (weight_BT < floor)
    return Corrected(jnp.where(out_BT, 0.0, weight_BT), out_BT)

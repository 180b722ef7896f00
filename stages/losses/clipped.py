"""The clipped objective of PPO, with two bounds and a third for bad tokens whose ratio exploded. Pure.

Axes: B rows, T length of a row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Objective(NamedTuple):
    """What is to be made large at each token, and which bound held it. Arrays [B, T]."""

    value: jax.Array
    """float: before any weight; no sign is turned."""
    low: jax.Array
    """bool: the lower bound of the ratio binds."""
    high: jax.Array
    """bool: the upper bound binds."""
    dual: jax.Array | None = None
    """bool: the dual clip binds; ``None`` without one."""


def clipped_objective(
    ratio_BT: jax.Array, advantages_BT: jax.Array, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Objective:
    """``min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)``, no less than ``dual_clip * A`` where A is negative.

    Where a bound binds, the value is constant and has no gradient.

    Args:
        ratio_BT: see ``likelihood_ratio``.
        advantages_BT: 0 outside the mask.
        clip_low: how far the ratio may fall below 1 for a token with a negative advantage.
        clip_high: how far it may rise above 1 for a token with a positive one.
        dual_clip: how large it may be for a token with a negative one, above 1; ``None`` for any size.

    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7; two bounds as in Yu et al. 2025, "DAPO"
        (arXiv 2503.14476), equation 10; dual clip: Ye et al. 2019, "Mastering Complex Control in MOBA Games with Deep
        Reinforcement Learning" (arXiv 1912.09729), equation 5.
    """
    free_BT = ratio_BT * advantages_BT
    clipped_BT = jnp.clip(ratio_BT, 1.0 - clip_low, 1.0 + clip_high) * advantages_BT
    value_BT = jnp.minimum(free_BT, clipped_BT)
    binds_BT = clipped_BT < free_BT
    low_BT, high_BT = binds_BT & (advantages_BT < 0.0), binds_BT & (advantages_BT > 0.0)
    if dual_clip is None:
        return Objective(value_BT, low_BT, high_BT)
    floor_BT = dual_clip * advantages_BT
    dual_BT = (advantages_BT < 0.0) & (value_BT < floor_BT)
    return Objective(jnp.where(dual_BT, floor_BT, value_BT), low_BT, high_BT, dual_BT)

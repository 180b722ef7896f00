"""The loss of a critic: how far its values are from the returns. Pure.

Axes: B rows, T length of a row.
"""

import jax
import jax.numpy as jnp

from stages.losses.tokens import Sums, masked_sum


def value_loss(
    values_BT: jax.Array, old_values_BT: jax.Array, returns_BT: jax.Array, clip: float | None
) -> tuple[jax.Array, jax.Array]:
    """Half the squared distance of value and return, the larger of free and clipped.

    Args:
        values_BT: of the critic being trained; 0 outside the mask.
        old_values_BT: when the advantages were made; 0 outside the mask.
        returns_BT: what it should say; 0 outside the mask.
        clip: how far a value may go from its old one and still gain; ``None`` for any.

    Returns:
        (loss [B, T], bool [B, T]: where the clip binds, so that there is no gradient).

    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", section 5 (the squared error); the clip is in the
        code published with it (openai/baselines, ppo2), not in the paper. We differ from the paper: the factor one half, as
        that code has it.
    """
    free_BT = jnp.square(values_BT - returns_BT)
    if clip is None:
        return 0.5 * free_BT, jnp.zeros(free_BT.shape, bool)
    near_BT = old_values_BT + jnp.clip(values_BT - old_values_BT, -clip, clip)
    clipped_BT = jnp.square(near_BT - returns_BT)
    return 0.5 * jnp.maximum(free_BT, clipped_BT), clipped_BT > free_BT


def value_sums(values_BT: jax.Array, returns_BT: jax.Array, mask_BT: jax.Array) -> Sums:
    """First and second moments of returns and errors.

    Of their means, ``1 - (value_error_squared - value_error ** 2) / (returns_squared - returns ** 2)`` is the explained
    variance: 1 for a critic that knows, 0 for one that says the same everywhere.
    """
    error_BT = returns_BT - values_BT
    return {
        "returns": masked_sum(returns_BT, mask_BT),
        "returns_squared": masked_sum(jnp.square(returns_BT), mask_BT),
        "value_error": masked_sum(error_BT, mask_BT),
        "value_error_squared": masked_sum(jnp.square(error_BT), mask_BT),
    }

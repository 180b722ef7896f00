"""Sums and means over the targets of each sequence of a packed row. Pure; no formula of a loss is here.

A sequence is a *segment*: what the policy read and said in one context. An episode whose history was written anew has several
rows and so counts as several sequences, each with a ratio of its own; so does one with several trained roles.

Axes: B rows, T length of a row, S numbers of sequences in a row, 0 (padding) to T.
"""

import jax
import jax.numpy as jnp


def sequence_sums(values_BT: jax.Array, mask_BT: jax.Array, numbers_BT: jax.Array) -> jax.Array:
    """Sum over the targets of each sequence.

    Args:
        values_BT: float; what stands outside the mask is not looked at.
        mask_BT: bool: targets.
        numbers_BT: int: number of the sequence in its row, from 0 to T.

    Returns:
        [B, S]: entry n is the sum of sequence n; 0 where there is none.
    """
    num = values_BT.shape[1] + 1
    return jax.vmap(lambda values, numbers: jax.ops.segment_sum(values, numbers, num_segments=num))(
        jnp.where(mask_BT, values_BT, 0.0), numbers_BT
    )


def spread(sums_BS: jax.Array, numbers_BT: jax.Array) -> jax.Array:
    """What belongs to a sequence at each of its tokens, [B, T]."""
    return jnp.take_along_axis(sums_BS, numbers_BT, axis=1)


def sequence_means(values_BT: jax.Array, mask_BT: jax.Array, numbers_BT: jax.Array) -> jax.Array:
    """Mean over the targets of a sequence at each of its tokens, [B, T]; 0 for a sequence without targets."""
    sums_BS = sequence_sums(values_BT, mask_BT, numbers_BT)
    counts_BS = sequence_sums(mask_BT.astype(values_BT.dtype), mask_BT, numbers_BT)
    return spread(sums_BS / jnp.maximum(counts_BS, 1.0), numbers_BT)

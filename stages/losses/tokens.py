"""What a loss sees: per-token arrays aligned to the token they describe. No logits, no parameters, no model.

Axes: B rows, T length of a row, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

Sums = dict[str, jax.Array]
"""float32 scalars, each a sum over the target tokens; divided by their number it is the mean that is reported."""


class Tokens(NamedTuple):
    """Target tokens of one micro-batch. Values where ``mask`` is False mean nothing and may be NaN."""

    logprobs: jax.Array
    """float32 [B, T]: log-probability of the token under the parameters being trained."""
    entropy: jax.Array
    """float32 [B, T]: entropy in nats of the distribution that predicted the token; carries no gradient."""
    behaviour: jax.Array
    """float32 [B, T]: log-probability of the token under the distribution it was sampled from."""
    advantages: jax.Array
    """float32 [B, T]"""
    mask: jax.Array
    """bool [B, T]: True for targets."""


Loss = Callable[[Tokens], tuple[jax.Array, Sums]]
"""(summed loss, sums to report). Sums and never means: micro-batches of any cut then add up to the same number."""


def masked_sum(values_BT: jax.Array, mask_BT: jax.Array) -> jax.Array:
    """Sum over the targets; whatever stands elsewhere, NaN included, is not looked at."""
    return jnp.sum(jnp.where(mask_BT, values_BT, 0.0))

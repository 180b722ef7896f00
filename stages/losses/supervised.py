"""Cross-entropy on demonstrations: a ``Loss`` that reads no advantage and no behaviour log-probability.

Axes: B rows, T length of a row.
"""

import jax
import jax.numpy as jnp

from stages.losses.tokens import Sums, Tokens, masked_sum


def supervised_loss(tokens: Tokens) -> tuple[jax.Array, Sums]:
    """Sum over targets of the negative log-probability.

    Args:
        tokens: see ``Tokens``; only ``logprobs``, ``entropy`` and ``mask`` are read.

    Returns:
        The summed loss, and the sum ``entropy``.
    """
    logprobs_BT = jnp.where(tokens.mask, tokens.logprobs, 0.0)
    return -jnp.sum(logprobs_BT), jax.lax.stop_gradient({"entropy": masked_sum(tokens.entropy, tokens.mask)})

"""Attention over packed rows and over a cache. Pure functions; queries and keys come turned already.

Over packed rows it is ``jax.nn.dot_product_attention``, which picks what runs on an accelerator; capped scores it has not, and
on a CPU ``blocked_attention.py`` is faster by far. Over a cache it is written out: there the keys have their positions last,
and no copy in another order is made.

Axes: B rows, T tokens of a row, S positions attended to, K key-value heads, G query heads of each, N = K * G, D head size.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from stages.models.blocked_attention import BLOCK, MASKED, Scores, blocked_attention
from stages.models.layers import soft_cap


def packed_attention(
    query_BTND: Float[Array, "B T N D"],
    keys_BTKD: Float[Array, "B T K D"],
    values_BTKD: Float[Array, "B T K D"],
    segments_BT: Int[Array, "B T"],
    *,
    scale: float,
    window: int | None = None,
    cap: float | None = None,
) -> Float[Array, "B T N D"]:
    """Each token attends to those of its segment at or before it in the row, at most ``window`` of them, itself included.

    Source: Ainslie et al. 2023, arXiv 2305.13245, for grouped queries.
    """
    if jax.default_backend() == "cpu" and segments_BT.shape[1] > BLOCK:
        return blocked_attention(query_BTND, keys_BTKD, values_BTKD, segments_BT, Scores(scale, window, cap))
    allowed_BTT = causal(segments_BT, window)
    if cap is None:
        mask_B1TT = allowed_BTT[:, None]
        return jax.nn.dot_product_attention(query_BTND, keys_BTKD, values_BTKD, mask=mask_B1TT, scale=scale)
    keys_BKDT, values_BKTD = jnp.transpose(keys_BTKD, (0, 2, 3, 1)), jnp.swapaxes(values_BTKD, 1, 2)
    return cached_attention(query_BTND, keys_BKDT, values_BKTD, allowed_BTT, scale=scale, cap=cap)


def causal(segments_BT: Int[Array, "B T"], window: int | None) -> Bool[Array, "B T T"]:
    """Which token may attend to which, in packed rows."""
    length = segments_BT.shape[1]
    seen_TT = jnp.tril(jnp.ones((length, length), bool))
    if window is not None:
        seen_TT &= ~jnp.tril(jnp.ones((length, length), bool), -window)
    return (segments_BT[:, :, None] == segments_BT[:, None, :]) & seen_TT[None]


def cached_attention(
    query_BTND: Float[Array, "B T N D"],
    keys_BKDS: Float[Array, "B K D S"],
    values_BKSD: Float[Array, "B K S D"],
    allowed_BTS: Bool[Array, "B T S"],
    *,
    scale: float,
    cap: float | None = None,
) -> Float[Array, "B T N D"]:
    """Attend to positions of a cache; a query that may see nothing gives a finite value without meaning.

    Scores and weights are float32. Keys have their positions last, the order in which scores are computed.
    """
    rows, new, heads, size = query_BTND.shape
    num_keys = keys_BKDS.shape[1]
    query_BKMD = jnp.moveaxis(query_BTND.reshape(rows, new, num_keys, -1, size), 1, 3).reshape(rows, num_keys, -1, size)
    dots_BKMS = jnp.einsum("bkmd,bkds->bkms", query_BKMD, keys_BKDS, preferred_element_type=jnp.float32)
    scores_BKGTS = soft_cap(dots_BKMS.reshape(rows, num_keys, -1, new, keys_BKDS.shape[3]) * scale, cap)
    weights_BKGTS = jax.nn.softmax(jnp.where(allowed_BTS[:, None, None], scores_BKGTS, MASKED), axis=-1)
    weights_BKMS = weights_BKGTS.astype(values_BKSD.dtype).reshape(dots_BKMS.shape)
    mixed_BKMD = jnp.einsum("bkms,bksd->bkmd", weights_BKMS, values_BKSD)
    return jnp.moveaxis(mixed_BKMD.reshape(rows, num_keys, -1, new, size), 3, 1).reshape(rows, new, heads, size)

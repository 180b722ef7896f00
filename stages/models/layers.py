"""The parts of a decoder block as pure functions: arrays in, arrays out. No parameters live here; transformer.py owns them.

Axes: B rows, T tokens of a row, S source tokens attended to, K key-value heads, G query heads per key-value head, D head size,
W width, F hidden size of the feed-forward part. ``...`` stands for any leading axes.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

MASKED = -1e30
"""Score of a pair that may not attend: finite, so that a row with nothing to attend to gives numbers and not NaN."""


def rms_norm(x: Float[Array, "... W"], scale_W: Float[Array, " W"], epsilon: float) -> Float[Array, "... W"]:
    """Scale each vector to a root mean square of one, then by ``scale_W``.

    Source: Zhang and Sennrich 2019, arXiv 1910.07467, equation 4; epsilon inside the root, as llama has it.
    """
    mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + epsilon) * jnp.broadcast_to(scale_W, x.shape)


def rotary_angles(
    positions: Int[Array, "..."], head_size: int, base: float
) -> tuple[Float[Array, "... D"], Float[Array, "... D"]]:
    """Cosine and sine by which ``rotate`` turns each position; computed once for all layers.

    Source: Su et al. 2021, arXiv 2104.09864, section 3.4.2, with the halves paired (i, i + D/2) as in llama's published weights
    on the hub, not (2i, 2i + 1) as in the paper; the two differ by a fixed permutation of the rows of q and k.
    """
    exponents = jnp.arange(0, head_size, 2, dtype=jnp.float32) / head_size
    frequencies = jnp.power(jnp.float32(base), -exponents)
    angles = positions.astype(jnp.float32)[..., None] * frequencies.reshape((1,) * positions.ndim + (-1,))
    angles = jnp.concatenate([angles, angles], axis=-1)
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Float[Array, "B T N D"], cosine: Float[Array, "B T D"], sine: Float[Array, "B T D"]) -> Float[Array, "B T N D"]:
    """Turn each pair (i, i + D/2) of every head by the angle of its position."""
    first, second = jnp.split(x, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    return x * cosine[:, :, None, :] + turned * sine[:, :, None, :]


class Source(NamedTuple):
    """Tokens to attend to, and which of them each query may see."""

    keys_BKDS: Float[Array, "B K D S"]
    values_BKSD: Float[Array, "B K S D"]
    allowed_BTS: Bool[Array, "B T S"]


def attend(query_BKGTD: Float[Array, "B K G T D"], *sources: Source) -> Float[Array, "B K G T D"]:
    """One softmax over the tokens of all sources; a query that may see nothing gives a finite value without meaning.

    Several sources rather than one, so that cached and new tokens are never concatenated: that would copy the cache.

    Source: Ainslie et al. 2023, arXiv 2305.13245 (grouped queries); scores are divided by the root of D.
    """
    shape = query_BKGTD.shape
    scale = shape[-1] ** -0.5
    query_BKND = query_BKGTD.reshape((*shape[:2], -1, shape[-1]))
    scores = []
    for keys_BKDS, _, allowed_BTS in sources:
        dots_BKNS = jnp.einsum("bknd,bkds->bkns", query_BKND, keys_BKDS)
        dots_BKGTS = dots_BKNS.reshape((*shape[:4], -1)) * scale
        scores.append(jnp.where(allowed_BTS[:, None, None], dots_BKGTS, MASKED))
    weights_BKGTS = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)
    weights_BKNS = weights_BKGTS.reshape((*query_BKND.shape[:3], -1))
    ends = list(itertools.accumulate(source.values_BKSD.shape[2] for source in sources))[:-1]
    parts = jnp.split(weights_BKNS, ends, axis=-1)
    return sum(
        jnp.einsum("bkns,bksd->bknd", part, source.values_BKSD) for part, source in zip(parts, sources, strict=True)
    ).reshape(shape)


def swiglu(
    x: Float[Array, "... W"],
    gate_WF: Float[Array, "W F"],
    up_WF: Float[Array, "W F"],
    down_FW: Float[Array, "F W"],
) -> Float[Array, "... W"]:
    """The gated feed-forward part.

    Source: Shazeer 2020, arXiv 2002.05202, equation 6, without biases.
    """
    return (jax.nn.silu(x @ gate_WF) * (x @ up_WF)) @ down_FW

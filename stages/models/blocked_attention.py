"""Packed attention block by block, for CPUs: no array has T x T numbers, and blocks that share no segment are skipped.

XLA's CPU backend works ``jax.nn.dot_product_attention`` out over all pairs of tokens of a row, most of which are masked where
rows are packed: measured, three times the time at 512 tokens and more beyond. Here the softmax is carried from block to block,
and the backward pass works the weights out again from what the forward pass kept of each query, its log-sum-exp. Accelerators
have better: see ``attention.py``, which chooses.

A loop over blocks has bounds that depend on the segments. On one device each row has bounds of its own; on a mesh, where rows
lie on several devices, all rows go together under the widest of them, so that no device waits for another inside a loop.

Axes: B rows, R rows that go together, T tokens of a row, M blocks of a row, N query heads, K key-value heads, G query heads of
each, D head size, Q tokens of a block, P = G * Q.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stages.models.mesh import on_a_mesh

BLOCK = 128
"""Tokens of a block: long enough for a matrix product to run near its rate, short enough to skip what segments do not share."""
MASKED = -1e30
"""Score of a pair that may not attend: finite, so that a row with nothing to attend to gives numbers and not NaN."""
PADDING = jnp.iinfo(jnp.int32).max
"""Segment of padding: behind all others, as it lies."""


class Scores(NamedTuple):
    """How scores are made, but for the segments. Hashable."""

    scale: float
    window: int | None
    cap: float | None


def blocked_attention(
    query_BTND: Float[Array, "B T N D"],
    keys_BTKD: Float[Array, "B T K D"],
    values_BTKD: Float[Array, "B T K D"],
    segments_BT: Int[Array, "B T"],
    scores: Scores,
) -> Float[Array, "B T N D"]:
    """What ``attention.packed_attention`` gives, for segments that are not torn apart in a row; padding gives finite values.

    Source: Dao et al. 2022, arXiv 2205.14135, algorithms 1 and 4. We differ: blocks are skipped by segment, and the queries of
        all heads that share keys are one matrix.
    """
    rows, length, heads, size = query_BTND.shape
    num_keys = keys_BTKD.shape[2]
    padded = -length % BLOCK
    together = rows if on_a_mesh() else 1

    def blocks(x: Array, inner: int) -> Array:
        """As [B / R, M, R, K, inner * Q, D]."""
        whole = jnp.pad(x, ((0, 0), (0, padded), (0, 0), (0, 0)))
        cut = whole.reshape(rows // together, together, -1, BLOCK, num_keys, inner, size)
        return jnp.transpose(cut, (0, 2, 1, 4, 5, 3, 6)).reshape(*cut.shape[:1], -1, together, num_keys, inner * BLOCK, size)

    shared = heads // num_keys
    known_BT = jnp.where(segments_BT == 0, PADDING, segments_BT)
    known_BT = jnp.pad(known_BT, ((0, 0), (0, padded)), constant_values=PADDING)
    known = jnp.swapaxes(known_BT.reshape(rows // together, together, -1, BLOCK), 1, 2)
    query, keys, values = blocks(query_BTND, shared), blocks(keys_BTKD, 1), blocks(values_BTKD, 1)
    mixed = _attend(scores, query, keys, values, known)
    out = mixed.reshape(*mixed.shape[:4], shared, BLOCK, size)
    out_BTND = jnp.transpose(out, (0, 2, 1, 5, 3, 4, 6)).reshape(rows, length + padded, heads, size)
    return out_BTND[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(scores: Scores, query: Array, keys: Array, values: Array, known: Array) -> Array:
    return _forward(scores, query, keys, values, known)[0]


def _forward(scores: Scores, query: Array, keys: Array, values: Array, known: Array) -> tuple[Array, tuple]:
    def of_rows(rows: tuple[Array, ...]) -> tuple[Array, Array]:
        query_MRKPD, keys_MRKQD, values_MRKQD, known_MRQ = rows
        first_M = _first_blocks(known_MRQ, scores.window)

        def of_block(at: Array) -> tuple[Array, Array]:
            query_RKPD = query_MRKPD[at]

            def step(other: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                top, total, mixed = carry
                scores_RKPQ, _ = _scores(scores, query_RKPD, keys_MRKQD[other], known_MRQ, at, other)
                higher = jnp.maximum(top, scores_RKPQ.max(axis=-1, keepdims=True))
                weights, kept = jnp.exp(scores_RKPQ - higher), jnp.exp(top - higher)
                added = jnp.matmul(weights.astype(values_MRKQD.dtype), values_MRKQD[other], preferred_element_type=jnp.float32)
                return higher, total * kept + weights.sum(axis=-1, keepdims=True), mixed * kept + added

            one = jnp.zeros((*query_RKPD.shape[:-1], 1), jnp.float32)
            start = one + MASKED, one, jnp.zeros(query_RKPD.shape, jnp.float32)
            top, total, mixed = jax.lax.fori_loop(first_M[at], at + 1, step, start)
            return (mixed / total).astype(query_RKPD.dtype), top + jnp.log(total)

        return jax.lax.map(of_block, jnp.arange(known_MRQ.shape[0], dtype=jnp.int32))

    mixed, log_total = jax.lax.map(of_rows, (query, keys, values, known))
    return mixed, (query, keys, values, known, mixed, log_total)


def _backward(scores: Scores, kept: tuple[Array, ...], gradient: Array) -> tuple[Array, Array, Array, None]:
    def of_rows(rows: tuple[Array, ...]) -> tuple[Array, Array, Array]:
        query_MRKPD, keys_MRKQD, values_MRKQD, known_MRQ, mixed_MRKPD, log_total_MRKP1, gradient_MRKPD = rows
        first_M = _first_blocks(known_MRQ, scores.window)

        def of_block(carry: tuple[Array, Array], at: Array) -> tuple[tuple[Array, Array], Array]:
            query_RKPD, gradient_RKPD = query_MRKPD[at], gradient_MRKPD[at]
            product = gradient_RKPD.astype(jnp.float32) * mixed_MRKPD[at].astype(jnp.float32)
            along_RKP1 = product.sum(axis=-1, keepdims=True)

            def step(other: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                of_query, of_keys, of_values = carry
                key_RKQD, value_RKQD = keys_MRKQD[other], values_MRKQD[other]
                scores_RKPQ, slope = _scores(scores, query_RKPD, key_RKQD, known_MRQ, at, other)
                weights = jnp.exp(scores_RKPQ - log_total_MRKP1[at])
                towards = jnp.matmul(gradient_RKPD, value_RKQD.mT, preferred_element_type=jnp.float32)
                inner = (weights * (towards - along_RKP1) * slope).astype(query_RKPD.dtype)
                of_query += jnp.matmul(inner, key_RKQD, preferred_element_type=jnp.float32)
                added_keys = jnp.matmul(inner.mT, query_RKPD, preferred_element_type=jnp.float32)
                added_values = jnp.matmul(
                    weights.astype(gradient_RKPD.dtype).mT, gradient_RKPD, preferred_element_type=jnp.float32
                )
                return of_query, of_keys.at[other].add(added_keys), of_values.at[other].add(added_values)

            start = jnp.zeros(query_RKPD.shape, jnp.float32), *carry
            of_query, *carried = jax.lax.fori_loop(first_M[at], at + 1, step, start)
            return (carried[0], carried[1]), of_query.astype(query_RKPD.dtype)

        zeros = jnp.zeros(keys_MRKQD.shape, jnp.float32)
        steps = jnp.arange(known_MRQ.shape[0], dtype=jnp.int32)
        (of_keys, of_values), of_query = jax.lax.scan(of_block, (zeros, zeros), steps)
        return of_query, of_keys.astype(keys_MRKQD.dtype), of_values.astype(values_MRKQD.dtype)

    return *jax.lax.map(of_rows, (*kept, gradient)), None


_attend.defvjp(_forward, _backward)


def _first_blocks(known_MRQ: Array, window: int | None) -> Array:
    """For each block the first one that any of its tokens may attend to; itself for padding alone."""
    blocks = known_MRQ.shape[0]
    at_M = jnp.arange(blocks, dtype=jnp.int32)
    lowest_MR, highest_MR = known_MRQ.min(axis=2), jnp.where(known_MRQ == PADDING, 0, known_MRQ).max(axis=2)
    meets_MMR = (highest_MR[None] >= lowest_MR[:, None]) & (highest_MR[:, None] > 0)
    meets_MM = meets_MMR.any(axis=2) & (at_M[None] < at_M[:, None])
    first_M = jnp.where(meets_MM, at_M[None], at_M[:, None]).min(axis=1)
    return first_M if window is None else jnp.maximum(first_M, (at_M * BLOCK - (window - 1)) // BLOCK)


def _scores(
    scores: Scores, query_RKPD: Array, keys_RKQD: Array, known_MRQ: Array, at: Array, other: Array
) -> tuple[Array, Array | float]:
    """Masked scores of one block of queries against one of keys, float32, and the slope by which they follow the products."""
    dots = jnp.matmul(query_RKPD, keys_RKQD.mT, preferred_element_type=jnp.float32) * scores.scale
    slope: Array | float = scores.scale
    if scores.cap is not None:
        squashed = jnp.tanh(dots / scores.cap)
        dots, slope = scores.cap * squashed, scores.scale * (1.0 - jnp.square(squashed))
    within_Q = jnp.arange(BLOCK, dtype=jnp.int32)
    behind_QQ = (at - other) * BLOCK + within_Q[:, None] - within_Q[None]
    allowed_QQ = behind_QQ >= 0 if scores.window is None else (behind_QQ >= 0) & (behind_QQ < scores.window)
    allowed_RQQ = (known_MRQ[at][:, :, None] == known_MRQ[other][:, None]) & allowed_QQ[None]
    shape = (dots.shape[0], 1, dots.shape[2] // BLOCK, BLOCK, BLOCK)
    allowed = jnp.broadcast_to(allowed_RQQ[:, None, None], shape).reshape(dots.shape[0], 1, *dots.shape[2:])
    return jnp.where(allowed, dots, MASKED), slope

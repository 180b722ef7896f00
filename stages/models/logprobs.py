"""Log-probability of each token given those before it in its segment, and the entropy it was drawn with. Pure; no loss here.

Final vectors are projected here, targets only and a chunk at a time, and once more in the backward pass: so the logits of a
micro-batch never exist whole, and tokens that are no targets (prompts, tool results, padding) cost no projection. Sums over the
vocabulary are float32.

On one device the targets of all rows stand in one line and the loop has as many chunks as they fill. On a mesh each row is a
line of its own, which stays on its devices, and the loop is as long as the row with the most targets needs.

Axes: B rows, T tokens of a row, V vocabulary, W width; G lines, L places in a line, N places of a chunk, of all
lines.
"""

import functools
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from stages.models.layers import soft_cap
from stages.models.mesh import on_a_mesh

CHUNK_LOGITS = 1 << 23
"""Logits of a chunk, in all lines: 32 MiB of float32. Fewer make its products slow, more cost memory alone."""


class Head(NamedTuple):
    """What turns final vectors into logits."""

    projection_VW: Array
    cap: float | None = None
    """See ``ModelConfig.logit_cap``."""


class Scorable(Protocol):
    """A model that can be trained: its logits are ``soft_cap(hidden @ projection.T, cap)``."""

    def hidden(self, ids_BT: Array, positions_BT: Array, segments_BT: Array, remat: bool = False) -> Array:
        """Final vectors [B, T, W] of packed rows; see ``Transformer.hidden``."""
        ...

    @property
    def head(self) -> Head:
        """What turns them into logits."""
        ...


class _How(NamedTuple):
    temperature: float
    cap: float | None
    chunk: int


def target_logprobs(
    hidden_BTW: Float[Array, "B T W"],
    head: Head,
    ids_BT: Int[Array, "B T"],
    mask_BT: Bool[Array, "B T"],
    temperature: float = 1.0,
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """Log-probabilities and entropies of targets, aligned to the token that is predicted. Both have gradients.

    Args:
        hidden_BTW: ``hidden[b, t]`` predicts the token after t.
        head: what turns it into logits.
        ids_BT: token ids.
        mask_BT: targets. The first token of a segment is none.
        temperature: divides the logits, as the sampler did; 0 stands for 1, as in ``stages.policy.SampleRequest``. Static.

    Returns:
        Float32 [B, T], nats. Entry t belongs to token t and comes from the vector at t - 1; 0 where it is no target.
    """
    rows, length, width = hidden_BTW.shape
    lines = rows if on_a_mesh() else 1
    vocabulary = head.projection_VW.shape[0]
    places = rows * (length - 1) // lines
    chunk = min(max(CHUNK_LOGITS // (vocabulary * lines), 16), places)
    how = _How(temperature or 1.0, head.cap, chunk)
    scored = _scored(
        how,
        hidden_BTW[:, :-1].reshape(lines, places, width),
        head.projection_VW,
        ids_BT[:, 1:].reshape(lines, places),
        mask_BT[:, 1:].reshape(lines, places),
    )
    return tuple(jnp.pad(array_GL.reshape(rows, length - 1), ((0, 0), (1, 0))) for array_GL in scored)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scored(how: _How, hidden_GLW: Array, projection_VW: Array, ids_GL: Array, mask_GL: Array) -> tuple[Array, Array]:
    """Log-probability and entropy of each place."""
    return _forward(how, hidden_GLW, projection_VW, ids_GL, mask_GL)[0]


def _forward(how: _How, hidden_GLW: Array, projection_VW: Array, ids_GL: Array, mask_GL: Array) -> tuple[Any, Any]:
    order_GL, back_GL, num_chunks = _ordered(how, mask_GL)
    sorted_GLW, sorted_GL = _targets(hidden_GLW, mask_GL, order_GL), _taken(ids_GL, order_GL)

    def step(at: Array, found: tuple[Array, ...]) -> tuple[Array, ...]:
        logits_VN, _ = _logits(how, _chunk(how, sorted_GLW, at), projection_VW)
        top_N = logits_VN.max(axis=0)
        shares_VN = jnp.exp(logits_VN - top_N[None])
        total_N = shares_VN.sum(axis=0)
        log_total_N = top_N + jnp.log(total_N)
        ids_1N = _chunk(how, sorted_GL, at)[None]
        logprobs_N = jnp.take_along_axis(logits_VN, ids_1N, axis=0, mode="clip")[0] - log_total_N
        entropy_N = log_total_N - (shares_VN * logits_VN).sum(axis=0) / total_N
        parts = (logprobs_N, entropy_N, log_total_N)
        return tuple(_written(how, whole, part, at) for whole, part in zip(found, parts, strict=True))

    zeros_GL = jnp.zeros(order_GL.shape, jnp.float32)
    logprobs_GL, entropy_GL, log_total_GL = jax.lax.fori_loop(0, num_chunks, step, (zeros_GL, zeros_GL, zeros_GL))
    scored = tuple(jnp.where(mask_GL, _taken(sorted_GL, back_GL), 0.0) for sorted_GL in (logprobs_GL, entropy_GL))
    return scored, (hidden_GLW, projection_VW, ids_GL, mask_GL, entropy_GL, log_total_GL)


def _backward(how: _How, kept: tuple[Array, ...], gradients: tuple[Array, Array]) -> tuple[Array | None, ...]:
    """With p the probabilities and H the entropy: d log p_i / d z = e_i - p, and d H / d z = -p (log p + H)."""
    hidden_GLW, projection_VW, ids_GL, mask_GL, entropy_GL, log_total_GL = kept
    order_GL, back_GL, num_chunks = _ordered(how, mask_GL)
    sorted_GLW, sorted_GL = _targets(hidden_GLW, mask_GL, order_GL), _taken(ids_GL, order_GL)
    of_logprobs_GL, of_entropy_GL = (_taken(jnp.where(mask_GL, given_GL, 0.0), order_GL) for given_GL in gradients)
    numbers_V1 = jnp.arange(projection_VW.shape[0], dtype=ids_GL.dtype)[:, None]

    def step(at: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        of_hidden_GLW, of_projection_VW = carry
        chunk_NW = _chunk(how, sorted_GLW, at)
        logits_VN, slope = _logits(how, chunk_NW, projection_VW)
        first_1N, second_1N, ids_1N, entropy_1N, log_total_1N = (
            _chunk(how, array_GL, at)[None] for array_GL in (of_logprobs_GL, of_entropy_GL, sorted_GL, entropy_GL, log_total_GL)
        )
        logprobs_VN = logits_VN - log_total_1N
        drawn_VN = jnp.where(numbers_V1 == ids_1N, first_1N, 0.0)
        inner_VN = drawn_VN - jnp.exp(logprobs_VN) * (first_1N + second_1N * (logprobs_VN + entropy_1N))
        towards_VN = (inner_VN * slope).astype(hidden_GLW.dtype)
        added_NW = jnp.matmul(towards_VN.T, projection_VW, preferred_element_type=jnp.float32)
        added_VW = jnp.matmul(towards_VN, chunk_NW, preferred_element_type=jnp.float32)
        return _written(how, of_hidden_GLW, added_NW.astype(of_hidden_GLW.dtype), at), of_projection_VW + added_VW

    start = jnp.zeros_like(sorted_GLW), jnp.zeros(projection_VW.shape, jnp.float32)
    of_hidden_GLW, of_projection_VW = jax.lax.fori_loop(0, num_chunks, step, start)
    return _taken(of_hidden_GLW, back_GL), of_projection_VW.astype(projection_VW.dtype), None, None


_scored.defvjp(_forward, _backward)


def _ordered(how: _How, mask_GL: Array) -> tuple[Array, Array, Array]:
    """Places with the targets first, filled up to whole chunks; where each place went; and the chunks that hold a target."""
    padded = -mask_GL.shape[1] % how.chunk
    order_GL = jnp.argsort(jnp.pad(~mask_GL, ((0, 0), (0, padded)), constant_values=True), axis=1, stable=True)
    back_GL = jnp.argsort(order_GL, axis=1)[:, : mask_GL.shape[1]]
    most = mask_GL.sum(axis=1, dtype=jnp.int32).max()
    return jnp.minimum(order_GL, mask_GL.shape[1] - 1), back_GL, (most + how.chunk - 1) // how.chunk


def _targets(hidden_GLW: Array, mask_GL: Array, order_GL: Array) -> Array:
    """Vectors in their order, zeros for places without a target: the last chunk reads some, and NaN times 0 is NaN."""
    return jnp.where(_taken(mask_GL, order_GL)[..., None], _taken(hidden_GLW, order_GL), 0)


def _taken(array_GL: Array, places_GL: Array) -> Array:
    return jnp.take_along_axis(array_GL, places_GL.reshape(*places_GL.shape, *(1,) * (array_GL.ndim - 2)), axis=1)


def _chunk(how: _How, array_GL: Array, at: Array) -> Array:
    """[N, ...]: the places of one chunk, of all lines."""
    cut_GC = jax.lax.dynamic_slice_in_dim(array_GL, at * how.chunk, how.chunk, axis=1)
    return cut_GC.reshape(-1, *array_GL.shape[2:])


def _written(how: _How, array_GL: Array, chunk_N: Array, at: Array) -> Array:
    cut_GC = chunk_N.reshape(array_GL.shape[0], how.chunk, *chunk_N.shape[1:])
    return jax.lax.dynamic_update_slice_in_dim(array_GL, cut_GC, at * how.chunk, axis=1)


def _logits(how: _How, hidden_NW: Array, projection_VW: Array) -> tuple[Array, Array | float]:
    """Logits as sampled from, and the slope by which they follow the products.

    The vocabulary comes first, so that sums over it run along whole vectors: XLA's CPU backend sums a last axis one by one.
    """
    products_VN = jnp.matmul(projection_VW, hidden_NW.T, preferred_element_type=jnp.float32)
    capped_VN = soft_cap(products_VN, how.cap)
    slope = 1.0 / how.temperature
    if how.cap is None:
        return capped_VN * slope, slope
    return capped_VN * slope, slope * (1.0 - jnp.square(capped_VN / how.cap))

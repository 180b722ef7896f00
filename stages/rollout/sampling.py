"""Draw one token per slot. Pure functions: which slot a request sits in, and who its neighbours are, enters nowhere.

Axes: S slots, V vocabulary, N blocks of the vocabulary, M tokens of a block.
"""

import hashlib
import math
import struct

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32


def request_key(key: tuple[int, int, int, int, int]) -> np.ndarray:
    """The base key of a request, uint32 [2], from (seed, birth, member, retry, turn).

    A hash on the host rather than a chain of ``fold_in`` calls, which would cost five dispatches a request. Takes any 64-bit
    integers.
    """
    digest = hashlib.blake2b(struct.pack("<5q", *key), digest_size=8).digest()
    return np.frombuffer(digest, dtype="<u4").astype(np.uint32)


def sample_tokens(
    logits_SV: Float[Array, "S V"],
    temperature_S: Float[Array, " S"],
    keys_S2: UInt32[Array, "S 2"],
    positions_S: Int[Array, " S"],
) -> tuple[Int[Array, " S"], Float[Array, " S"]]:
    """One token per slot.

    Args:
        logits_SV: scores of the next token.
        temperature_S: above 0 divides the logits; 0 takes the most likely token.
        keys_S2: base key of the slot's request (``request_key``).
        positions_S: position of the sampled token in its context, folded into the key.

    Returns:
        int32 [S] token ids, and float32 [S] log-probabilities under the distribution sampled from (temperature 1 where the
        temperature is 0, so that a greedy token has one too).
    """
    greedy_S = temperature_S <= 0.0
    scaled_SV = logits_SV / jnp.where(greedy_S, 1.0, temperature_S)[:, None]
    largest_S1 = jnp.max(scaled_SV, axis=-1, keepdims=True)
    weights_SV = jnp.exp(scaled_SV - largest_S1)
    drawn_S = _draw(weights_SV, _uniforms(keys_S2, positions_S))
    ids_S = jnp.where(greedy_S, jnp.argmax(logits_SV, axis=-1).astype(jnp.int32), drawn_S)
    chosen_S = jnp.take_along_axis(scaled_SV, ids_S[:, None], axis=-1)[:, 0]
    return ids_S, chosen_S - largest_S1[:, 0] - jnp.log(jnp.sum(weights_SV, axis=-1))


def _uniforms(keys_S2: Array, positions_S: Array) -> Float[Array, "S 2"]:
    """Two numbers in [0, 1) per slot."""

    def one(key_2: Array, position: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(key_2), position), (2,), jnp.float32)

    return jax.vmap(one)(keys_S2, positions_S)


def _draw(weights_SV: Array, uniforms_S2: Array) -> Int[Array, " S"]:
    """An index with probability proportional to its weight: first a block of about sqrt(V) tokens, then a token in it.

    Two small inversions instead of Gumbel noise, which needs a random number per token (at 49,152 tokens the noise takes longer
    than the projection), and instead of one inversion over V, whose 24-bit uniform is coarse against rare tokens.
    """
    slots, vocabulary = weights_SV.shape
    size = math.isqrt(vocabulary - 1) + 1
    padded_SV = jnp.pad(weights_SV, ((0, 0), (0, -vocabulary % size)))
    blocks_SNM = padded_SV.reshape(slots, -1, size)
    block_S = _invert(jnp.sum(blocks_SNM, axis=-1), uniforms_S2[:, 0])
    inside_SM = jnp.take_along_axis(blocks_SNM, block_S[:, None, None], axis=1)[:, 0]
    return block_S * size + _invert(inside_SM, uniforms_S2[:, 1])


def _invert(weights_SN: Array, uniform_S: Array) -> Int[Array, " S"]:
    """First index whose running sum exceeds ``uniform * total``; its weight is then above 0, whatever was rounded."""
    running_SN = jnp.cumsum(weights_SN, axis=-1)
    total_S = running_SN[:, -1]
    target_S = jnp.minimum(uniform_S * total_S, jnp.nextafter(total_S, jnp.zeros_like(total_S)))
    return jnp.sum(running_SN <= target_S[:, None], axis=-1, dtype=jnp.int32)

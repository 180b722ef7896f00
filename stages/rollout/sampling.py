"""Draw one token per slot. Pure functions: which slot a request sits in, and who its neighbours are, enters nowhere.

The vocabulary is read in blocks of about its root: maxima and sums of blocks first, then one block. Over 49,152 tokens that is
a tenth of the time that an arg-max over the whole takes on CPU. What truncates (top-k, top-p, min-p) comes down to one number a
slot, the lowest score that stays, and is found only in steps in which somebody asks for it.

Axes: S slots that a token is drawn for, V vocabulary, N blocks of the vocabulary, M tokens of a block.
"""

import hashlib
import math
import struct
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from stages.rollout.truncation import lowest_kept


class Draw(NamedTuple):
    """How each slot wants its token, as in ``stages.policy.SampleRequest``."""

    temperature_S: Float[Array, " S"]
    top_k_S: Int[Array, " S"]
    top_p_S: Float[Array, " S"]
    min_p_S: Float[Array, " S"]
    untempered_S: Bool[Array, " S"]
    keys_S2: UInt32[Array, "S 2"]
    """Base key of the slot's request, see ``request_key``."""


class Drawn(NamedTuple):
    """One token per slot."""

    ids_S: Int[Array, " S"]
    logprobs_S: Float[Array, " S"]
    """Under the distribution drawn from; at temperature 1 over the whole vocabulary where the temperature is 0."""
    untempered_S: Float[Array, " S"]
    """At temperature 1 over the whole vocabulary, for slots that asked for it; without meaning for others."""


def request_key(key: tuple[int, int, int, int, int]) -> np.ndarray:
    """The base key of a request, uint32 [2], from (seed, birth, member, retry, turn).

    A hash on the host rather than a chain of ``fold_in`` calls, which would cost five dispatches a request. Takes any 64-bit
    integers.
    """
    digest = hashlib.blake2b(struct.pack("<5q", *key), digest_size=8).digest()
    return np.frombuffer(digest, dtype="<u4").astype(np.uint32)


def no_draws(slots: int) -> Draw:
    """What slots that take no part hold: nothing that costs time or gives NaN."""
    ones_S, zeros_S = np.ones(slots, np.float32), np.zeros(slots, np.float32)
    return Draw(
        ones_S, np.zeros(slots, np.int32), ones_S.copy(), zeros_S, np.zeros(slots, bool), np.zeros((slots, 2), np.uint32)
    )


def sample_tokens(logits_SV: Float[Array, "S V"], draw: Draw, positions_S: Int[Array, " S"]) -> Drawn:
    """One token per slot.

    Args:
        logits_SV: scores of the next token.
        draw: how each slot wants it. A temperature above 0 divides the logits; 0 takes the most likely token.
        positions_S: position of the sampled token in its context, folded into the key.
    """
    greedy_S = draw.temperature_S <= 0.0
    scaled_SV = logits_SV / jnp.where(greedy_S, 1.0, draw.temperature_S)[:, None]
    scores_SNM = _blocks(scaled_SV)
    best_SN = jnp.max(scores_SNM, axis=-1)
    largest_S = jnp.max(best_SN, axis=-1)
    floor_S = lowest_kept(
        scores_SNM.reshape(len(scores_SNM), -1),
        largest_S,
        jnp.where(greedy_S, 0, draw.top_k_S),
        jnp.where(greedy_S, 1.0, draw.top_p_S),
        jnp.where(greedy_S, 0.0, draw.min_p_S),
    )
    kept_SNM = scores_SNM >= floor_S[:, None, None]
    weights_SNM = jnp.where(kept_SNM, jnp.exp(scores_SNM - largest_S[:, None, None]), 0.0)
    sums_SN = jnp.sum(weights_SNM, axis=-1)
    uniforms_S2 = _uniforms(draw.keys_S2, positions_S)
    block_S = jnp.where(greedy_S, jnp.argmax(best_SN, axis=-1).astype(jnp.int32), _invert(sums_SN, uniforms_S2[:, 0]))
    inside_SM = _take(weights_SNM, block_S)
    place_S = jnp.where(greedy_S, _first_best(_take(scores_SNM, block_S)), _invert(inside_SM, uniforms_S2[:, 1]))
    ids_S = block_S * scores_SNM.shape[-1] + place_S
    chosen_S = jnp.take_along_axis(scaled_SV, ids_S[:, None], axis=-1, mode="clip")[:, 0]
    logprobs_S = chosen_S - largest_S - jnp.log(jnp.sum(sums_SN, axis=-1))
    return Drawn(ids_S, logprobs_S, _untempered(logits_SV, ids_S, draw.untempered_S))


def _blocks(scores_SV: Array) -> Float[Array, "S N M"]:
    """The vocabulary in blocks of about its root, filled up with tokens that have no probability."""
    slots, vocabulary = scores_SV.shape
    # A power of two: the vocabularies of models are multiples of a large one, and then nothing is copied to fill up.
    size = 1 << round(math.log2(vocabulary) / 2)
    return jnp.pad(scores_SV, ((0, 0), (0, -vocabulary % size)), constant_values=-jnp.inf).reshape(slots, -1, size)


def _uniforms(keys_S2: Array, positions_S: Array) -> Float[Array, "S 2"]:
    """Two numbers in [0, 1) per slot."""

    def one(key_2: Array, position: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(key_2), position), (2,), jnp.float32)

    return jax.vmap(one)(keys_S2, positions_S)


def _take(values_SNM: Array, block_S: Array) -> Float[Array, "S M"]:
    return jnp.take_along_axis(values_SNM, block_S[:, None, None], axis=1, mode="clip")[:, 0]


def _first_best(scores_SM: Array) -> Int[Array, " S"]:
    return jnp.argmax(scores_SM, axis=-1).astype(jnp.int32)


def _invert(weights_SN: Array, uniform_S: Array) -> Int[Array, " S"]:
    """First index whose running sum exceeds ``uniform * total``; its weight is then above 0, whatever was rounded.

    Two small inversions, for a block and for a token in it, instead of Gumbel noise, which needs a random number per token (at
    49,152 tokens it takes longer than the projection), and instead of one over V, whose 24-bit uniform is coarse against rare
    tokens.
    """
    running_SN = jnp.cumsum(weights_SN, axis=-1)
    total_S = running_SN[:, -1]
    target_S = jnp.minimum(uniform_S * total_S, jnp.nextafter(total_S, jnp.zeros_like(total_S)))
    return jnp.sum(running_SN <= target_S[:, None], axis=-1, dtype=jnp.int32)


def _untempered(logits_SV: Array, ids_S: Array, wanted_S: Array) -> Float[Array, " S"]:
    def score(logits_SV: Array, ids_S: Array) -> Array:
        chosen_S = jnp.take_along_axis(logits_SV, ids_S[:, None], axis=-1, mode="clip")[:, 0]
        return chosen_S - jax.nn.logsumexp(logits_SV, axis=-1)

    def nothing(logits_SV: Array, ids_S: Array) -> Array:
        return jnp.zeros(ids_S.shape, logits_SV.dtype)

    return jax.lax.cond(jnp.any(wanted_S), score, nothing, logits_SV, ids_S)

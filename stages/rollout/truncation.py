"""The lowest score that top-k, top-p and min-p leave in a slot's distribution. Pure.

All three keep the tokens above some score, so together they are one number a slot. It is found by bisection over the ordered
bits of float32, which ends at the exact score in 32 passes and needs no sort: sorting 49,152 scores takes longer than all of
them. Each is looked for only in a step in which a slot asks for it.

Axes: S slots, V vocabulary.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def lowest_kept(
    scores_SV: Float[Array, "S V"],
    largest_S: Float[Array, " S"],
    top_k_S: Int[Array, " S"],
    top_p_S: Float[Array, " S"],
    min_p_S: Float[Array, " S"],
) -> Float[Array, " S"]:
    """The lowest score that stays, minus infinity where all do; the largest one always stays.

    Args:
        scores_SV: logits over the temperature.
        largest_S: the largest score of each slot.
        top_k_S: how many stay; 0 for all. Tokens whose score equals that of the k-th stay too.
        top_p_S: of what top-k leaves, the most likely ones stay that together have this share; 1 for all. Ties as above.
        min_p_S: of what is left, tokens at least this share as likely as the most likely one stay; 0 for all.

    Source: the logits warpers of transformers, in their order: top-k (Fan et al. 2018, arXiv 1805.04833), top-p (Holtzman et
    al. 2020, arXiv 1904.09751), min-p (Nguyen et al. 2024, arXiv 2407.01082). We differ: a tie at the end of top-p is kept
    whole, where theirs depends on the order of a sort.
    """
    floor_S = jnp.where(min_p_S > 0.0, largest_S + jnp.log(jnp.where(min_p_S > 0.0, min_p_S, 1.0)), -jnp.inf)
    limits_S = jnp.where((top_k_S > 0) & (top_k_S < scores_SV.shape[-1]), top_k_S, scores_SV.shape[-1])
    nothing_S = jnp.full_like(largest_S, -jnp.inf)
    by_count_S = jax.lax.cond(jnp.any(limits_S < scores_SV.shape[-1]), _by_count, lambda *_: nothing_S, scores_SV, limits_S)
    by_share_S = jax.lax.cond(
        jnp.any(top_p_S < 1.0), _by_share, lambda *_: nothing_S, scores_SV, largest_S, by_count_S, top_p_S
    )
    return jnp.minimum(jnp.maximum(jnp.maximum(floor_S, by_count_S), by_share_S), largest_S)


def _by_count(scores_SV: Array, limits_S: Array) -> Float[Array, " S"]:
    def enough(floor_S: Array) -> Array:
        return jnp.sum(scores_SV >= floor_S[:, None], axis=-1, dtype=jnp.int32) >= limits_S

    floor_S = _highest(enough, len(scores_SV))
    return jnp.where(limits_S < scores_SV.shape[-1], floor_S, -jnp.inf)


def _by_share(scores_SV: Array, largest_S: Array, by_count_S: Array, top_p_S: Array) -> Float[Array, " S"]:
    weights_SV = jnp.where(scores_SV >= by_count_S[:, None], jnp.exp(scores_SV - largest_S[:, None]), 0.0)
    wanted_S = top_p_S * jnp.sum(weights_SV, axis=-1)

    def enough(floor_S: Array) -> Array:
        return jnp.sum(jnp.where(scores_SV >= floor_S[:, None], weights_SV, 0.0), axis=-1) >= wanted_S

    return jnp.where(top_p_S < 1.0, _highest(enough, len(scores_SV)), -jnp.inf)


def _highest(enough: Callable[[Array], Bool[Array, " S"]], slots: int) -> Float[Array, " S"]:
    """The highest score at which ``enough`` holds, for something that holds at minus infinity and stops holding once.

    Floats are ordered as their bits are, read as integers with the sign taken care of.
    """

    def as_float(ordered_S: Array) -> Array:
        return jax.lax.bitcast_convert_type(jnp.where(ordered_S < 0, ordered_S ^ 0x7FFFFFFF, ordered_S), jnp.float32)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low_S, high_S = bounds
        # Halves are added, not the sum halved: the bounds may be of both signs and far apart.
        middle_S = (low_S >> 1) + (high_S >> 1) + (low_S & high_S & 1)
        middle_S = jnp.where(middle_S == low_S, low_S + 1, middle_S)
        holds_S = enough(as_float(middle_S))
        return jnp.where(holds_S, middle_S, low_S), jnp.where(holds_S, high_S, middle_S)

    infinity = 0x7F800000
    low_S, high_S = jnp.full(slots, -infinity - 1, jnp.int32), jnp.full(slots, infinity, jnp.int32)
    return as_float(jax.lax.fori_loop(0, 33, halve, (low_S, high_S))[0])

"""Keys and values of tokens already seen, for every layer and slot. Storage only: who owns which slot is the engine's business.

Design: a layer writes the keys and values of its new tokens first, and then attends to the slot's whole row. The other order,
reading the row as it was and writing at the end, makes XLA copy the cache in each step (measured on CPU at 32 slots of 256
positions: twice the time of a step). It also means that the key of a position always stands in one column of one array, so the
sum over keys runs in one order however a context was cut into steps. Each layer has arrays of its own for the same reason that
it has parameters of its own: a slice of a stacked array is a copy. Keys are stored with the positions last, the order in which
scores are computed (a fifth of a step).

Axes: S slots, K key-value heads, T cached positions, D head size; R rows of a step, C new tokens of a row.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stages.models.config import ModelConfig


class LayerCache(NamedTuple):
    """Keys and values of one layer."""

    keys_SKDT: Float[Array, "S K D T"]
    values_SKTD: Float[Array, "S K T D"]


class Cache(NamedTuple):
    """A pytree of arrays whose first axis is the slot, meant to be donated from step to step."""

    layers: tuple[LayerCache, ...]

    @property
    def num_slots(self) -> int:
        """Slots there are."""
        return self.layers[0].values_SKTD.shape[0]

    @property
    def length(self) -> int:
        """Positions each slot holds."""
        return self.layers[0].values_SKTD.shape[2]


def empty_cache(config: ModelConfig, num_slots: int, length: int) -> Cache:
    """A cache of zeros: finite, so that positions masked out later cannot turn a sum into NaN."""
    outer, dtype = (num_slots, config.num_kv_heads), jnp.dtype(config.dtype)

    def layer() -> LayerCache:
        return LayerCache(
            jnp.zeros((*outer, config.head_size, length), dtype), jnp.zeros((*outer, length, config.head_size), dtype)
        )

    return Cache(tuple(layer() for _ in range(config.num_layers)))


def write(
    layer: LayerCache,
    keys_RCKD: Float[Array, "R C K D"],
    values_RCKD: Float[Array, "R C K D"],
    slots_R: Int[Array, " R"],
    positions_RC: Int[Array, "R C"],
) -> LayerCache:
    """Store new keys and values at (slot, position) pairs. A position at or past the cache's length is dropped, not clamped."""
    slots_R1 = slots_R[:, None]
    return LayerCache(
        layer.keys_SKDT.at[slots_R1, :, :, positions_RC].set(keys_RCKD, mode="drop"),
        layer.values_SKTD.at[slots_R1, :, positions_RC].set(values_RCKD, mode="drop"),
    )

"""Keys and values of tokens already seen, for every layer and slot. Storage only: who owns which slot is the engine's business.

Design: a step reads the cache as it was, keeps its own new keys and values aside, and writes them for all layers at once at the
end. Updating layer by layer inside the loop over layers makes XLA copy the whole cache in each step (measured on CPU: 2 to 8
times the time of a step). Keys are stored with the positions last, the order in which scores are computed (it saves a tenth of
a step or more).

Axes: L layers, S slots, K key-value heads, T cached positions, D head size; R rows of a step, C new tokens of a row.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stages.models.config import ModelConfig


class Cache(NamedTuple):
    """A pytree of two arrays, meant to be donated from step to step."""

    keys_LSKDT: Float[Array, "L S K D T"]
    values_LSKTD: Float[Array, "L S K T D"]

    @property
    def num_slots(self) -> int:
        """Slots there are."""
        return self.values_LSKTD.shape[1]

    @property
    def length(self) -> int:
        """Positions each slot holds."""
        return self.values_LSKTD.shape[3]


def empty_cache(config: ModelConfig, num_slots: int, length: int) -> Cache:
    """A cache of zeros: finite, so that positions masked out later cannot turn a sum into NaN."""
    outer = (config.num_layers, num_slots, config.num_kv_heads)
    keys_LSKDT = jnp.zeros((*outer, config.head_size, length), jnp.float32)
    return Cache(keys_LSKDT, jnp.zeros((*outer, length, config.head_size), jnp.float32))


def write(
    cache: Cache,
    keys_LRKDC: Float[Array, "L R K D C"],
    values_LRKCD: Float[Array, "L R K C D"],
    slots_R: Int[Array, " R"],
    positions_RC: Int[Array, "R C"],
) -> Cache:
    """Store new keys and values at (slot, position) pairs. A position at or past ``cache.length`` is dropped, not clamped."""
    slots_R1 = slots_R[:, None]
    keys_RCLKD, values_RCLKD = jnp.transpose(keys_LRKDC, (1, 4, 0, 2, 3)), jnp.transpose(values_LRKCD, (1, 3, 0, 2, 4))
    return Cache(
        cache.keys_LSKDT.at[:, slots_R1, :, :, positions_RC].set(keys_RCLKD, mode="drop"),
        cache.values_LSKTD.at[:, slots_R1, :, positions_RC].set(values_RCLKD, mode="drop"),
    )

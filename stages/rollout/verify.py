"""Proof that weights arrive: what the engine holds after a load, against what was published, bit by bit.

Nothing is copied to compare: each side makes two checksums of every leaf where the leaf lies, and those are compared. They do
not depend on how a leaf is split over devices. For checks and for doubts, not for every step.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, UInt32

from stages.models.mesh import mesh_of, starting
from stages.models.names import named_leaves
from stages.records import Weights
from stages.rollout.engine import Engine

SEEDS = (0x9E3779B9, 0x7F4A7C15)
"""Of the two checksums."""


class SyncReport(msgspec.Struct, frozen=True):
    """What a comparison found."""

    num_leaves: int
    """Leaves compared."""
    num_bytes: int
    """Their size, in the engine's type."""
    differing: tuple[str, ...]
    """Names of leaves of which the engine holds other bits, in the order of the tree."""


async def verify_sync(engine: Engine, parameters: Any) -> SyncReport:
    """Let an engine load parameters over random numbers, and compare. They are in force afterwards, the version stays.

    The random numbers are what makes a leaf that no load reaches show: otherwise it might hold the right bits from before.

    Args:
        engine: open. What it is sampling meanwhile is nonsense.
        parameters: all of the model's, or exactly its adapters, as ``Engine.load`` takes them.

    Raises:
        ValueError: they do not fit the engine's model.
        RuntimeError: they could not be copied, or the engine is closed.
    """
    await engine.scramble(parameters)
    await engine.load(Weights(parameters), engine.statistics().version)
    return compare_sync(engine, parameters)


def compare_sync(engine: Engine, parameters: Any) -> SyncReport:
    """Compare what is in force in an engine with parameters, cast to the engine's type, as they are now."""
    held, given = named_leaves(engine.parameters), named_leaves(parameters)
    differing = [name for name, leaf in given.items() if _checksums(leaf, held[name].dtype) != _checksums(held[name])]
    return SyncReport(len(given), sum(held[name].nbytes for name in given), tuple(differing))


def checksums(leaf: Array) -> UInt32[Array, " 2"]:
    """Two sums modulo 2**32 over the hashed bits and places of a leaf's numbers: exact, in whatever order they are added."""
    bits = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{8 * leaf.dtype.itemsize}")).astype(jnp.uint32)
    strides = [math.prod(leaf.shape[axis + 1 :]) % 2**32 for axis in range(leaf.ndim)]
    place = jnp.zeros(leaf.shape, jnp.uint32)
    for axis, stride in enumerate(strides):
        place = place + jax.lax.broadcasted_iota(jnp.uint32, leaf.shape, axis) * np.uint32(stride)
    return jnp.stack([jnp.sum(_mixed(bits ^ _mixed(place + np.uint32(seed)))) for seed in SEEDS])


def _mixed(bits: Array) -> Array:
    """The finalizer of MurmurHash3: each bit of the input changes half of the output."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> np.uint32(16))


_cast_checksums = jax.jit(lambda leaf, dtype: checksums(leaf.astype(dtype)), static_argnums=1)


def _checksums(leaf: Array, dtype: Any = None) -> tuple[int, ...]:
    with starting(mesh_of([leaf])):
        sums = _cast_checksums(leaf, leaf.dtype if dtype is None else dtype)
    return tuple(np.asarray(sums).tolist())

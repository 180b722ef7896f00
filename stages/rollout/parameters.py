"""The parameters an engine samples with: where they lie, in which type, and which are in force.

On the mesh of the model they come from and in its type they are shared with whoever published them. Otherwise the engine has a
copy: cast where the published ones lie, so that fewer bytes travel, and then put from device to device.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array

from stages.models.mesh import mesh_of, starting
from stages.models.sharding import shardings
from stages.models.transformer import Transformer
from stages.rollout.weights import is_gone, matching_leaves


class Parameters:
    """Of one engine. Lists of leaves are in the order of its tree; in one that was published ``None`` keeps what is in force.

    Args:
        model: whose parameters are in force at first.
        dtype: type of the engine's copy; ``None`` for the model's.
        mesh: where the engine computes; ``None`` for where the model lies.
    """

    def __init__(self, model: Transformer, dtype: str | None, mesh: Mesh | None):
        self.graphdef, own = nnx.split(model, nnx.Param)
        self.mesh = mesh_of(own) if mesh is None else mesh
        self.config = model.config.model_copy(update={"dtype": dtype or model.config.dtype})
        leaves, self.structure = jax.tree.flatten(own)
        self._places = jax.tree.leaves(shardings(model, self.mesh))
        self._published = jax.tree.unflatten(self.structure, [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves])
        self.leaves: list[Array] = self.place(leaves)

    @property
    def shapes(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Of the leaves, with type and place. Hashable."""
        dtype = jnp.dtype(self.config.dtype)
        pairs = zip(jax.tree.leaves(self._published), self._places, strict=True)
        return tuple(jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=place) for leaf, place in pairs)

    @property
    def tree(self) -> nnx.State:
        """What is in force."""
        return jax.tree.unflatten(self.structure, self.leaves)

    def matching(self, published: Any) -> list[Any]:
        """The leaves of a tree that was published, in the model's types: of all parameters, or of all adapters.

        Raises:
            ValueError: see ``matching_leaves``.
        """
        return matching_leaves(self._published, published)

    def is_placed(self, leaves: Sequence[Any]) -> bool:
        """Whether leaves could be put in force as they are."""
        return all(_is_placed(leaf, shape) for leaf, shape in zip(leaves, self.shapes, strict=True) if leaf is not None)

    def place(self, leaves: Sequence[Any]) -> list[Any]:
        """Leaves in the engine's type and place, themselves where they are so already; returns once they are there."""
        dtype = jnp.dtype(self.config.dtype)
        with starting(self.mesh):
            given = [leaf if leaf is None or leaf.dtype == dtype else _cast(leaf, dtype) for leaf in leaves]
            placed = [
                leaf if leaf is None or _is_placed(leaf, shape) else jax.device_put(leaf, shape.sharding)
                for leaf, shape in zip(given, self.shapes, strict=True)
            ]
        jax.block_until_ready([leaf for leaf in placed if not is_gone(leaf)])
        return placed

    def put_in_force(self, leaves: Sequence[Any]) -> None:
        """Exchange what is in force, all or none.

        Args:
            leaves: placed.

        Raises:
            ValueError: some were deleted since they were checked.
        """
        if gone := sum(map(is_gone, leaves)):
            raise ValueError(f"{gone} of {len(leaves)} arrays were deleted after they were published")
        self.leaves = [old if new is None else new for old, new in zip(self.leaves, leaves, strict=True)]

    def scramble(self, leaves: Sequence[Any]) -> None:
        """Put random numbers in force, past the way that published parameters take, where ``leaves`` are not ``None``."""
        self.leaves = [
            old if leaf is None else _noise(number, shape.shape, shape.dtype, shape.sharding)
            for number, (old, leaf, shape) in enumerate(zip(self.leaves, leaves, self.shapes, strict=True))
        ]


def _is_placed(leaf: Any, shape: jax.ShapeDtypeStruct) -> bool:
    """Whether a leaf may be put in force as it is.

    Not while it is being computed: the step that reads it first would wait. One that is gone is left for ``put_in_force`` to
    refuse.
    """
    if is_gone(leaf):
        return True
    if not isinstance(leaf, jax.Array) or leaf.dtype != shape.dtype or not leaf.is_ready():
        return False
    return leaf.sharding.is_equivalent_to(shape.sharding, leaf.ndim)


@functools.partial(jax.jit, static_argnums=1)
def _cast(leaf: Array, dtype: Any) -> Array:
    return leaf.astype(dtype)


def _noise(seed: int, shape: tuple[int, ...], dtype: Any, place: NamedSharding) -> Array:
    return jax.device_put(jax.random.normal(jax.random.key(seed), shape, dtype), place)

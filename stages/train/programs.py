"""The functions of a training step, jitted, for a model, a loss and a config, and where their arrays lie. No arrays.

Cached: the same arguments give the same objects, under which JAX finds what it has compiled. So a run that is resumed in its
process, or trained again with another seed, compiles once.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from stages.batches.rows import empty_rows
from stages.losses.tokens import Loss
from stages.models.mesh import mesh_of, replicated
from stages.train.config import TrainerConfig
from stages.train.optimizer import make_optimizer
from stages.train.step import Accumulated, cast_like, make_accumulate, make_objective, make_update


class Programs(NamedTuple):
    """What a trainer runs. ``Any`` is a jitted function: see ``stages.train.step`` for arguments and results."""

    init: Any
    """Optimizer state of parameters."""
    accumulate: Any
    """Donates its second argument, what was accumulated."""
    update: Any
    """Donates its second and third argument, optimizer state and what was accumulated."""
    publish: Any
    """Parameters in the types of the model; ``None`` where they have them."""
    state: Any
    """Shapes and shardings of the optimizer state."""
    accumulated: Accumulated
    """Shapes and shardings of what is accumulated."""


class Layout(NamedTuple):
    """What is trained, without its values: the model's own types, and where each leaf lies. Hashable."""

    structure: jax.tree_util.PyTreeDef
    leaves: tuple[jax.ShapeDtypeStruct, ...]

    @classmethod
    def of(cls, parameters: Any, mesh: Mesh) -> "Layout":
        """The layout of parameters, or of their shapes. Those that lie on no mesh will be on every device of this one."""
        leaves, structure = jax.tree.flatten(parameters)
        places = [leaf.sharding if isinstance(leaf.sharding, NamedSharding) else replicated(mesh) for leaf in leaves]
        pairs = zip(leaves, places, strict=True)
        return cls(structure, tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place) for leaf, place in pairs))

    @property
    def tree(self) -> Any:
        """Shapes and shardings, as a tree."""
        return jax.tree.unflatten(self.structure, self.leaves)

    @property
    def dtypes(self) -> tuple[Any, ...]:
        """The model's own types."""
        return tuple(leaf.dtype for leaf in self.leaves)

    @property
    def masters(self) -> Any:
        """Shapes and shardings of the parameters in float32, as a tree."""
        leaves = [jax.ShapeDtypeStruct(leaf.shape, jnp.float32, sharding=leaf.sharding) for leaf in self.leaves]
        return jax.tree.unflatten(self.structure, leaves)


@functools.lru_cache(maxsize=4)
def programs(
    graphdef: nnx.GraphDef, layout: Layout, frozen: Layout, loss: Loss, config: TrainerConfig, temperature: float
) -> Programs:
    """Jitted functions; nothing is compiled yet. All arguments are hashable and compared by value.

    Whatever goes with a parameter, its gradient and its moments, lies where the parameter lies; the rest is on every device.
    """
    optimizer = make_optimizer(config)
    objective = make_objective(graphdef, layout.dtypes, loss, temperature)
    everywhere = replicated(mesh_of(layout.leaves))
    shapes = layout.masters
    places = jax.tree.map(lambda leaf: leaf.sharding, shapes)
    state = optax.tree_utils.tree_map_params(
        optimizer, lambda leaf, place: _at(leaf, place), jax.eval_shape(optimizer.init, shapes), places,
        transform_non_params=lambda leaf: _at(leaf, everywhere),
    )  # fmt: skip
    state_at = jax.tree.map(lambda leaf: leaf.sharding, state)
    rows = empty_rows(config.rows_per_microbatch, config.row_length, loss.needs.arrays)
    reported, (sums, gap) = jax.eval_shape(objective, shapes, frozen.tree, rows, np.int32(0))
    loose = jax.tree.map(lambda leaf: _at(leaf, everywhere), (reported, sums, gap))
    accumulated = Accumulated(shapes, *loose)
    sums_at = jax.tree.map(lambda leaf: leaf.sharding, accumulated)
    own = all(dtype == jnp.float32 for dtype in layout.dtypes)
    return Programs(
        init=jax.jit(optimizer.init, out_shardings=state_at),
        accumulate=jax.jit(make_accumulate(objective), donate_argnums=1, out_shardings=sums_at),
        update=jax.jit(make_update(optimizer), donate_argnums=(1, 2), out_shardings=(places, state_at, sums_at, everywhere)),
        publish=None if own else jax.jit(lambda parameters: cast_like(parameters, layout.dtypes)),
        state=state,
        accumulated=accumulated,
    )


def _at(leaf: Any, place: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)

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

from stages.batches.rows import Rows, empty_rows
from stages.losses.tokens import Loss
from stages.models.mesh import mesh_of, replicated, row_sharding
from stages.train.config import TrainerConfig
from stages.train.optimizer import make_optimizer
from stages.train.step import Accumulated, cast_like, make_accumulate, make_objective, make_pulls, make_read, make_update


class Programs(NamedTuple):
    """What a trainer runs. ``Any`` is a jitted function: see ``stages.train.step`` for arguments and results."""

    init: Any
    """Optimizer state of parameters."""
    accumulate: Any
    """Donates its second argument, what was accumulated. Gives log-probabilities of the targets beside it."""
    update: Any
    """Donates its second and third argument, optimizer state and what was accumulated; where parameters are published in
    another type, so that nobody else has these, its first one too."""
    logprobs: Any
    """Log-probabilities [N, L] of the tokens of rows."""
    pulls: Any
    """What the loss reads of rows, and the derivative of the summed loss by each log-probability: to look into a bad step."""
    publish: Any
    """Parameters in the types of the model, all of them new arrays; ``None`` where they have these types."""
    state: Any
    """Shapes and shardings of the optimizer state, as the update takes it."""
    state_at_rest: Any
    """Shardings of the optimizer state between updates."""
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
    read = make_read(graphdef, layout.dtypes, loss, temperature, config.remat == "block")
    objective = make_objective(read, loss)
    everywhere = replicated(mesh_of(layout.leaves))
    shapes = layout.masters
    places = jax.tree.map(lambda leaf: leaf.sharding, shapes)
    state = optax.tree_utils.tree_map_params(
        optimizer, lambda leaf, place: _at(leaf, place), jax.eval_shape(optimizer.init, shapes), places,
        transform_non_params=lambda leaf: _at(leaf, everywhere),
    )  # fmt: skip
    state_at = jax.tree.map(lambda leaf: leaf.sharding, state)
    rows = rows_like(config.shapes[0], config, loss)
    reported, (sums, gap, _) = jax.eval_shape(objective, shapes, frozen.tree, rows, np.int32(0))
    loose = jax.tree.map(lambda leaf: _at(leaf, everywhere), (reported, sums, gap))
    accumulated = Accumulated(shapes, *loose)
    sums_at = jax.tree.map(lambda leaf: leaf.sharding, accumulated)
    own = all(dtype == jnp.float32 for dtype in layout.dtypes)
    return Programs(
        init=jax.jit(optimizer.init, out_shardings=state_at),
        accumulate=jax.jit(
            make_accumulate(objective), donate_argnums=1, out_shardings=(sums_at, row_sharding(mesh_of(layout.leaves)))
        ),
        update=jax.jit(
            make_update(optimizer),
            donate_argnums=(1, 2) if own else (0, 1, 2),
            out_shardings=(places, state_at, sums_at, everywhere),
        ),
        logprobs=jax.jit(lambda *arguments: read(*arguments).logprobs),
        pulls=jax.jit(make_pulls(read, loss)),
        publish=None if own else jax.jit(lambda parameters: jax.tree.map(jnp.copy, cast_like(parameters, layout.dtypes))),
        state=state,
        state_at_rest=state_at if config.optimizer_memory == "device" else jax.tree.map(_in_host_memory, state_at),
        accumulated=accumulated,
    )


def scores_first(config: TrainerConfig, loss: Loss) -> bool:
    """Whether log-probabilities under the parameters at the beginning of a step are computed before its first update.

    With a single update the loss has them itself, as those it differentiates.
    """
    return config.max_updates > 1 and loss.needs.proximal


def rows_like(shape: tuple[int, int], config: TrainerConfig, loss: Loss) -> Rows:
    """Rows with the arrays that the objective is compiled for."""
    return empty_rows(*shape, (*loss.needs.arrays, *("proximal",) * scores_first(config, loss)))


def _in_host_memory(place: NamedSharding) -> NamedSharding:
    return place.with_memory_kind("pinned_host")


def _at(leaf: Any, place: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)

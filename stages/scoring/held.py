"""The parameters a stage scores with: where they rest, where they compute, which are in force. Computes nothing.

On the devices of the model they come from they are that model's own arrays, shared and never donated. On other devices, or in
host memory, they are copies. What is trained of a model may be replaced by what was published; what is frozen stays.
"""

from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from stages.models.lora import trained
from stages.models.mesh import mesh_of, replicated, starting
from stages.models.names import named_leaves
from stages.models.sharding import shardings
from stages.scoring.config import Memory

RESTS = "pinned_host"
"""Kind of memory, by JAX's name."""


class Held:
    """Of one stage.

    Args:
        model: loaded, or described for what needs shapes alone.
        mesh: devices of its own; ``None`` for where the model lies.
        memory: where parameters of its own rest.

    Attributes:
        graphdef: of the model, split in what is trained and what is frozen.
        mesh: where it computes.
    """

    def __init__(self, model: Any, mesh: Mesh | None, memory: Memory) -> None:
        self.graphdef, own, frozen = nnx.split(model, trained(model), nnx.Param)
        self.mesh = mesh_of((own, frozen)) if mesh is None else mesh
        self._places = _places(model, own, frozen, self.mesh, moves=mesh is not None)
        self._own_rests = memory == "host"
        self._frozen_rests = memory == "host" and mesh is not None
        self._shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (own, frozen))
        self._own, self._frozen = own, frozen

    @property
    def shapes(self) -> tuple[Any, Any]:
        """Shapes of (trained, frozen), with the places where they compute."""
        own, frozen = self._shapes
        return self._shaped(own, False), self._shaped(frozen, False)

    @property
    def resting(self) -> tuple[Any, Any]:
        """The same with the places where they rest."""
        own, frozen = self._shapes
        return self._shaped(own, self._own_rests), self._shaped(frozen, self._frozen_rests)

    @property
    def arrays(self) -> tuple[Any, Any]:
        """(trained, frozen) where they rest."""
        return self._own, self._frozen

    def open(self) -> None:
        """Take the model's parameters as they are."""
        self._own = self._put(self._own, self._own_rests)
        self._frozen = self._put(self._frozen, self._frozen_rests)

    def take(self, published: Any, who: str) -> None:
        """Put published parameters in force in place of all that is trained; returns once they are there.

        Raises:
            ValueError: they are not those of this model; the old ones stay in force.
        """
        wanted, given = named_leaves(self._shapes[0]), named_leaves(published)
        apart = sorted(wanted.keys() ^ given.keys()) or sorted(
            name for name in wanted if (wanted[name].shape, wanted[name].dtype) != (given[name].shape, given[name].dtype)
        )
        if apart:
            raise ValueError(
                f"expected the {len(wanted)} parameters of the model that scores, got others: {', '.join(apart[:5])} (scoring, "
                f"{who}); publish those of a model with the same config"
            )
        leaves = [given[name] for name in wanted]
        self._own = self._put(jax.tree.unflatten(jax.tree.structure(self._shapes[0]), leaves), self._own_rests)

    def on_devices(self) -> tuple[Any, Any]:
        """(trained, frozen) as they are in force, where they compute; a copy that lasts as long as it is held, if they rest."""
        own, frozen = self._own, self._frozen
        return self._put(own, False) if self._own_rests else own, self._put(frozen, False) if self._frozen_rests else frozen

    def _put(self, tree: Any, rests: bool) -> Any:
        with starting(self.mesh):
            placed = jax.tree.map(lambda leaf, shape: jax.device_put(leaf, shape.sharding), tree, self._shaped(tree, rests))
        return jax.block_until_ready(placed)

    def _shaped(self, tree: Any, rests: bool) -> Any:
        def shape(path: str, leaf: Any) -> jax.ShapeDtypeStruct:
            place = self._places[path]
            return _at(leaf, place.with_memory_kind(RESTS) if rests else place)

        return _mapped(tree, shape)


def _places(model: Any, own: Any, frozen: Any, mesh: Mesh, *, moves: bool) -> dict[str, NamedSharding]:
    """By the path within its part. A model that moves is spread as its mesh has it, another one stays where it lies."""
    if moves:
        return named_leaves(shardings(model, mesh))
    leaves = {**named_leaves(own), **named_leaves(frozen)}
    return {path: _computes(leaf.sharding, mesh) for path, leaf in leaves.items()}


def _computes(place: Any, mesh: Mesh) -> NamedSharding:
    """The place on the devices of an array that lies there, or rests in their host's memory."""
    if not isinstance(place, NamedSharding):
        return replicated(mesh)
    return NamedSharding(place.mesh, place.spec) if place.memory_kind == RESTS else place


def _mapped(tree: Any, function: Any) -> Any:
    named = named_leaves(tree)
    return jax.tree.unflatten(jax.tree.structure(tree), [function(path, leaf) for path, leaf in named.items()])


def _at(leaf: Any, place: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)

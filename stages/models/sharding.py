"""Where a model lies on a mesh: one table from the logical names of axes to those of the mesh, and what follows from it.

Parameters carry the names (``axes`` of their metadata), so nothing here knows a module. What is computed where follows from
where arrays lie: the partitioner of XLA inserts the communication. Tried on CPU devices, with dense models and mixtures. The
grouped product of a mixture is partitioned too, but tokens are sorted by expert across all devices that share rows, and so
gathered.
"""

from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from stages.models.config import ModelConfig
from stages.models.critic import ActorCritic, Critic
from stages.models.names import path_of
from stages.models.transformer import Transformer

RULES: dict[str, str | None] = {
    "vocab": "tensor",
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "experts": None,
}
"""Logical name of an axis to the axis of the mesh it is split over. Experts stay together: each is split inside, by ``mlp``."""


Spread = Transformer | Critic | ActorCritic
"""What can be spread over a mesh: parameters that name their axes, and a shape."""


def shardings(model: Spread, mesh: Mesh) -> nnx.State:
    """A ``NamedSharding`` for each parameter, adapters included, as a tree like ``nnx.state(model, nnx.Param)``."""
    return _mapped(model, lambda param: NamedSharding(mesh, PartitionSpec(*_split(param, model.config, mesh))))


def shard(model: Spread, mesh: Mesh) -> None:
    """Spread a model's parameters over a mesh, in place.

    Of a model that is only described the weights yet to come are told where to go: ``tensors.fill`` puts each there as it is
    read, so none has to fit on one device.
    """
    state = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(_placed, state, shardings(model, mesh)))


def undivided(model: Spread, mesh: Mesh) -> dict[str, str]:
    """Parameters with an axis that stays whole on every device because it does not divide, and which it is, by path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(nnx.state(model, nnx.Param), is_leaf=_is_variable)
    found = {path_of(at): _left_whole(param, model.config, mesh) for at, param in leaves}
    return {path: "; ".join(axes) for path, axes in found.items() if axes}


def cache_sharding(config: ModelConfig, mesh: Mesh) -> NamedSharding:
    """Of the arrays of a cache: key-value heads as the projections that write them; every device has all slots."""
    axis = RULES["kv_heads"]
    return NamedSharding(mesh, PartitionSpec(None, axis if axis and config.num_kv_heads % mesh.shape[axis] == 0 else None))


def _placed(leaf: Any, sharding: NamedSharding) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    return jax.device_put(leaf, sharding)


def _mapped(model: Spread, function: Any) -> nnx.State:
    state = nnx.state(model, nnx.Param)
    return jax.tree.map(lambda param: param.replace(function(param)), state, is_leaf=_is_variable)


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)


def _split(param: Any, config: ModelConfig, mesh: Mesh) -> list[str | None]:
    """Axis of the mesh for each axis of a parameter, ``None`` where it stays whole."""
    axes = []
    for name, size in zip(param.get_metadata()["axes"], param.shape, strict=True):
        axis = RULES[name] if name else None
        axes.append(axis if axis and _units(name, size, config) % mesh.shape[axis] == 0 else None)
    return axes


def _units(name: str, size: int, config: ModelConfig) -> int:
    """Parts that an axis may be cut into: a head is never cut."""
    return size // config.head_size if name in ("heads", "kv_heads") else size


def _left_whole(param: Any, config: ModelConfig, mesh: Mesh) -> list[str]:
    named = zip(param.get_metadata()["axes"], param.shape, _split(param, config, mesh), strict=True)
    wanted = [(name, size, RULES[name]) for name, size, axis in named if name and RULES[name] and axis is None]
    return [f"{_units(name, size, config)} {name} do not divide by {axis}={mesh.shape[axis]}" for name, size, axis in wanted]

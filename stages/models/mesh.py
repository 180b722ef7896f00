"""Meshes of devices: their shape, the devices they take, and arrays that are split by rows or not at all. Knows no model.

Axes of a mesh: ``data`` splits rows only, ``fsdp`` rows and parameters, ``tensor`` the inside of a layer. What parameters do on
one stands in ``sharding.py``.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array
from pydantic import BaseModel, ConfigDict, Field

ROWS = PartitionSpec(("data", "fsdp"))
"""Of an array whose first axis is the row of a batch."""

_STARTING = threading.RLock()


class MeshConfig(BaseModel):
    """Over how many devices a model is spread, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: int = Field(default=1, ge=1)
    """Copies of the model, each of which takes a share of the rows."""
    fsdp: int = Field(default=1, ge=1)
    """Devices that share parameters and optimizer state of a copy, and split its rows. Each gathers what it computes with."""
    tensor: int = Field(default=1, ge=1)
    """Devices that split each layer between them: heads, hidden units, vocabulary."""

    @property
    def size(self) -> int:
        """Devices in all."""
        return self.data * self.fsdp * self.tensor


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh of the first devices there are.

    Args:
        config: its shape.
        devices: what to choose from; ``None`` for all of this process.

    Raises:
        ValueError: there are too few devices.
    """
    devices = jax.devices() if devices is None else devices
    if config.size > len(devices):
        raise ValueError(
            f"expected {config.size} devices, for data={config.data} times fsdp={config.fsdp} times tensor={config.tensor}; "
            f"got {len(devices)}, in make_mesh; make the mesh smaller"
        )
    shape = (config.data, config.fsdp, config.tensor)
    axes = ("data", "fsdp", "tensor")
    return jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,) * 3, devices=devices[: config.size])


def mesh_of(parameters: Any) -> Mesh:
    """The mesh that parameters lie on; one of a single device for those that lie on none.

    Args:
        parameters: pytree of arrays, or of their shapes.
    """
    leaves = jax.tree.leaves(parameters)
    meshes = (leaf.sharding.mesh for leaf in leaves if isinstance(leaf.sharding, NamedSharding))
    found = next(meshes, None)
    if isinstance(found, Mesh):
        return found
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    return make_mesh(MeshConfig(), [min(arrays[0].devices(), key=lambda device: device.id)] if arrays else None)


def starting(mesh: Mesh) -> AbstractContextManager[Any]:
    """Hold this while a program is started on a mesh, or arrays are moved onto it; not while they are waited for.

    A program over several devices goes into the queue of each of them. Were two threads to start one at once, as engine and
    trainer on a shared mesh would, one device might begin with the one and another with the other, and each wait for ever for
    its partner in a collective operation. So programs are started one after another, and devices take turns in that order. On
    a mesh of one device nobody waits.
    """
    return _STARTING if mesh.size > 1 else nullcontext()


def row_sharding(mesh: Mesh) -> NamedSharding:
    """Of arrays whose first axis is the row of a batch."""
    return NamedSharding(mesh, ROWS)


def replicated(mesh: Mesh) -> NamedSharding:
    """Of arrays that every device has whole."""
    return NamedSharding(mesh, PartitionSpec())


def on_a_mesh() -> bool:
    """Whether what is traced now runs on several devices: under ``jax.set_mesh``, with a mesh of more than one."""
    mesh = jax.sharding.get_abstract_mesh()
    return not mesh.empty and mesh.size > 1


def shares_of_rows(mesh: Mesh) -> int:
    """Devices that share the rows of a batch, each with as many; the others have copies of theirs."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def spread_rows(x: Array) -> Array:
    """Hold what flows between layers to one share of the rows on each device, under ``jax.set_mesh``; nothing without a mesh.

    Without this the partitioner splits the width of the stream as the parameters are split by ``fsdp``: every device would
    then compute with all rows.
    """
    return jax.lax.with_sharding_constraint(x, ROWS) if on_a_mesh() else x


def whole_rows(table: Array) -> Array:
    """Hold the rows [V, W] of a table whole, under ``jax.set_mesh``: what looks them up is split by ``fsdp`` already."""
    if not on_a_mesh():
        return table
    axis = "tensor" if table.shape[0] % jax.sharding.get_abstract_mesh().shape["tensor"] == 0 else None
    return jax.lax.with_sharding_constraint(table, PartitionSpec(axis))

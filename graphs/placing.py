"""A pretrained model on its devices: adapters beside its weights, its mesh, and those of others. Loads nothing."""

from collections import Counter
from typing import NamedTuple

import jax
from flax import nnx
from jax.sharding import Mesh
from pydantic import BaseModel, ConfigDict

from stages.models.lora import LoraConfig, add_lora
from stages.models.mesh import MeshConfig, make_mesh, mesh_of
from stages.models.sharding import shard, undivided
from stages.models.transformer import Transformer


class PlacingConfig(BaseModel):
    """What of a model is trained, and on which devices."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lora: LoraConfig | None = None
    """Adapters, which alone are trained, saved and sent to the engine; ``None`` trains all parameters."""
    mesh: MeshConfig = MeshConfig()
    """Devices of the trainer, the first there are."""
    engine_mesh: MeshConfig | None = None
    """Devices of the engine, the first after those of the trainer; ``None`` shares the trainer's, and its arrays."""
    reference_mesh: MeshConfig | None = None
    """Devices of the reference and of the teacher, the first after those of trainer and engine; ``None`` shares the trainer's.
    A critic is always on the trainer's."""


class Places(NamedTuple):
    """Devices beside the trainer's; ``None`` for those of the trainer."""

    engine: Mesh | None
    reference: Mesh | None


def placing_warnings(model: Transformer, engine_mesh: Mesh | None, reference_mesh: Mesh | None = None) -> list[str]:
    """What to say of parameters that devices cannot share as they are meant to, because an axis does not divide.

    Args:
        model: placed.
        engine_mesh: the engine's; ``None`` for the model's.
        reference_mesh: the reference's; ``None`` for the model's, or without one.
    """
    warnings = []
    if engine_mesh is not None and engine_mesh.shape["data"] > 1:
        warnings.append(
            f"the engine's devices along data={engine_mesh.shape['data']} hold the same slots and do the same "
            "work; spread it by policy.engine_mesh.tensor, or give it fewer"
        )
    meshes = {"trainer": mesh_of(nnx.state(model, nnx.Param)), "engine": engine_mesh, "reference": reference_mesh}
    for who, mesh in meshes.items():
        reasons = undivided(model, mesh).values() if mesh is not None else ()
        warnings += [
            f"every device of the {who} holds {num} parameters whole: {reason}" for reason, num in Counter(reasons).items()
        ]
    return warnings


def placed(model: Transformer, engine_mesh: Mesh | None, reference_mesh: Mesh | None) -> str:
    """Who has how many devices, in a line, and how many are left. Arguments as those of ``placing_warnings``."""
    meshes = {"trainer": mesh_of(nnx.state(model, nnx.Param)), "engine": engine_mesh, "reference": reference_mesh}
    shares = [f"{who} {_told(mesh)}" for who, mesh in meshes.items() if mesh is not None]
    idle = jax.device_count() - sum(mesh.size for mesh in meshes.values() if mesh is not None)
    return ", ".join(shares) + (f"; {idle} of {jax.device_count()} idle" if idle else "")


def _told(mesh: Mesh) -> str:
    split = " ".join(f"{axis}={size}" for axis, size in mesh.shape.items() if size > 1)
    return f"{mesh.size}" + (f" ({split})" if split else "")


def place(model: Transformer, config: PlacingConfig) -> Places:
    """Give a model, which may be only described, its adapters and its devices.

    Returns:
        The devices of the others.

    Raises:
        ValueError: there are too few devices, or a module for an adapter is none.
    """
    if config.lora is not None:
        add_lora(model, config.lora)
    shard(model, make_mesh(config.mesh))
    taken, meshes = config.mesh.size, []
    asked = {"engine": config.engine_mesh, "reference": config.reference_mesh}
    _check_devices({"trainer": config.mesh, **{who: mesh for who, mesh in asked.items() if mesh is not None}})
    for mesh in asked.values():
        meshes.append(None if mesh is None else make_mesh(mesh, jax.devices()[taken:]))
        taken += 0 if mesh is None else mesh.size
    return Places(*meshes)


def _check_devices(meshes: dict[str, MeshConfig]) -> None:
    needed, devices = sum(mesh.size for mesh in meshes.values()), jax.devices()
    if needed > len(devices):
        shares = [f"{mesh.size} of the {who}" for who, mesh in meshes.items()]
        own = [f"{who}_mesh" for who in meshes if who != "trainer"]
        raise ValueError(
            f"expected {needed} devices, {', '.join(shares[:-1])} and {shares[-1]}; got {len(devices)}, in "
            f"{' and '.join(own)}; "
            f"make a mesh smaller, or leave {' or '.join(own)} out to share the trainer's devices"
        )

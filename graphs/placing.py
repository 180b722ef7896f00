"""A pretrained model on its devices: adapters beside its weights, its mesh and that of the engine. Loads nothing."""

from collections import Counter

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


def placing_warnings(model: Transformer, engine_mesh: Mesh | None) -> list[str]:
    """What to say of parameters that devices cannot share as they are meant to, because an axis does not divide.

    Args:
        model: placed.
        engine_mesh: the engine's; ``None`` for the model's.
    """
    warnings = []
    for who, mesh in (("trainer", mesh_of(nnx.state(model, nnx.Param))), ("engine", engine_mesh)):
        reasons = undivided(model, mesh).values() if mesh is not None else ()
        warnings += [
            f"every device of the {who} holds {num} parameters whole: {reason}" for reason, num in Counter(reasons).items()
        ]
    return warnings


def place(model: Transformer, config: PlacingConfig) -> Mesh | None:
    """Give a model, which may be only described, its adapters and its devices.

    Returns:
        The engine's mesh; ``None`` for the model's.

    Raises:
        ValueError: there are too few devices, or a module for an adapter is none.
    """
    if config.lora is not None:
        add_lora(model, config.lora)
    shard(model, make_mesh(config.mesh))
    if config.engine_mesh is None:
        return None
    needed, devices = config.mesh.size + config.engine_mesh.size, jax.devices()
    if needed > len(devices):
        raise ValueError(
            f"expected {needed} devices, {config.mesh.size} of the trainer and {config.engine_mesh.size} of the engine; "
            f"got {len(devices)}, in engine_mesh; make a mesh smaller, or leave engine_mesh out to share the trainer's devices"
        )
    return make_mesh(config.engine_mesh, devices[config.mesh.size :])

"""A pretrained model on its devices: adapters beside its weights, its mesh and that of the engine. Loads nothing."""

import jax
from jax.sharding import Mesh
from pydantic import BaseModel, ConfigDict

from stages.models.lora import LoraConfig, add_lora
from stages.models.mesh import MeshConfig, make_mesh
from stages.models.sharding import shard
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

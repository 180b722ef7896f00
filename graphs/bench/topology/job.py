"""The training whose parts are placed: the calculator with a frozen reference, its policy just taught to ask the tool."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np
from flax import nnx
from pydantic import BaseModel, ConfigDict, Field, model_validator

from graphs.bench.delays import DelaysConfig
from graphs.bench.scripted import WorldConfig
from graphs.bench.taught import TaughtConfig, taught_parts
from graphs.calculator import VOCABULARY
from graphs.parts import Parts
from graphs.placing import PlacingConfig, place
from graphs.rl_config import RlConfig
from graphs.scoring_config import ReferenceConfig
from stages.agents.sampling import SamplingConfig
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig, RotaryConfig
from stages.models.mesh import MeshConfig
from stages.models.transformer import Transformer
from stages.records import Episode
from stages.rewards.answers import exact_answer
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.train.config import TrainerConfig

ROW = 64
"""Tokens of the longest episode, and of a row of the trainer."""
GROUP_SIZE = 4
COLOCATED, TWO_WAY, THREE_WAY = "colocated", "two-way", "three-way"
ROLES = ("trainer", "engine", "reference")


class JobConfig(BaseModel):
    """What is trained, and how much of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelConfig = ModelConfig(
        vocab_size=VOCABULARY, width=128, num_layers=2, num_heads=8, num_kv_heads=8, head_size=16, mlp_width=384,
        rotary=RotaryConfig(base=10.0), context_length=ROW,
    )  # fmt: skip
    """Shape of the policy: half of the calculator's."""
    slots: int = Field(default=8, ge=1)
    """Episodes that the engine decodes at once, where placements are compared."""
    timed_slots: int = Field(default=32, ge=1)
    """The same of the run whose stages are timed, and of what is simulated."""
    taught_steps: int = Field(default=60, ge=0)
    """Steps in which the policy is taught to ask the tool, before anything is measured; 0 leaves it as it is drawn."""
    steps: int = Field(default=3, ge=3)
    """Steps in which placements are compared; with the second, memory and shardings are looked at."""
    groups_per_step: int = Field(default=4, ge=1)
    """Groups of four in each of them."""
    timed_steps: int = Field(default=4, ge=1)
    """Steps of the run whose stages are timed."""
    timed_groups: int = Field(default=8, ge=1)
    """Groups of four in each of those."""
    rows_per_microbatch: int = Field(default=8, ge=1)
    """Rows of the trainer, shared by its devices."""
    delays: DelaysConfig = DelaysConfig(seconds=(0.02, 0.1, 0.5))
    """Of the tool, one call an episode."""

    @property
    def engine(self) -> EngineConfig:
        """Shapes of the engine. Nothing is evicted, so that no bit depends on timing."""
        return EngineConfig(
            slots=self.slots, context_length=ROW, prefill_rows=min(4, self.slots), prefill_chunk=16, eviction="never"
        )

    @property
    def timed_engine(self) -> EngineConfig:
        """The same of the run whose stages are timed. An episode that waits for its tool holds no slot."""
        return self.engine.model_copy(update={"slots": self.timed_slots, "prefill_rows": 8, "eviction": "oldest"})

    @property
    def timed_concurrency(self) -> int:
        """Episodes at once in that run: those of two steps."""
        return 2 * self.timed_groups * GROUP_SIZE

    def training(self, **settings: Any) -> RlConfig:
        """Settings of the training; ``settings`` change them. Strictly on-policy, if they say nothing else."""
        # With an epsilon that the least gradients do not exceed: Adam would make whole steps of what rounding left of them.
        trainer = TrainerConfig(row_length=ROW, rows_per_microbatch=self.rows_per_microbatch, learning_rate=3e-3, epsilon=1e-3)
        shared: dict[str, Any] = {
            "steps": self.steps, "groups_per_step": self.groups_per_step, "group_size": GROUP_SIZE, "seed": 0,
            "max_concurrency": self.slots, "sampling": SamplingConfig(max_tokens_per_turn=16, max_turns=3, seed=0),
            "reference": ReferenceConfig(), "loss": PolicyLoss(kl_coefficient=0.1), "trainer": trainer,
        }  # fmt: skip
        return RlConfig(**{**shared, **settings})


class Budget(BaseModel):
    """Devices, and how they are given to the roles."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    devices: int = Field(default=8, ge=4)
    """Of every topology, a multiple of four; as many virtual ones of the CPU where there are no two accelerators. With fewer
    accelerators than that, the largest multiple of four that there is, and colocated and two-way alone with less than four."""

    @model_validator(mode="after")
    def _in_quarters(self) -> Self:
        if self.devices % 4:
            raise ValueError(
                f"expected a multiple of 4, got {self.devices}, in budget.devices; take {self.devices // 4 * 4 + 4}"
            )
        return self

    def topologies(self) -> Mapping[str, PlacingConfig]:
        """All devices in each: one mesh for all roles; the engine apart, with half; the reference apart too, with a quarter."""
        return topologies_of(self.devices)


def topologies_of(devices: int) -> dict[str, PlacingConfig]:
    """By name, those that so many devices allow."""
    half, quarter = devices // 2, devices // 4
    found = {
        COLOCATED: PlacingConfig(mesh=MeshConfig(fsdp=devices)),
        TWO_WAY: PlacingConfig(mesh=MeshConfig(fsdp=half), engine_mesh=MeshConfig(tensor=half)),
    }
    if quarter:
        apart = {"engine_mesh": MeshConfig(tensor=quarter), "reference_mesh": MeshConfig(fsdp=quarter)}
        found[THREE_WAY] = PlacingConfig(mesh=MeshConfig(fsdp=half), **apart)
    return found


def moved_alone(devices: int) -> dict[str, PlacingConfig]:
    """The same three with one shape of mesh for every role, a quarter of the devices: nothing differs but where they are."""
    each = MeshConfig(fsdp=max(1, devices // 4))
    apart = {"engine_mesh": each, "reference_mesh": each}
    found = {COLOCATED: PlacingConfig(mesh=each), TWO_WAY: PlacingConfig(mesh=each, engine_mesh=each)}
    return found | ({THREE_WAY: PlacingConfig(mesh=each, **apart)} if devices >= 3 else {})


def devices_by_role(placing: PlacingConfig) -> Mapping[str, int]:
    """How many devices each role computes on."""
    meshes = (placing.mesh, placing.engine_mesh or placing.mesh, placing.reference_mesh or placing.mesh)
    return dict(zip(ROLES, (mesh.size for mesh in meshes), strict=True))


def shares_of_roles(placing: PlacingConfig) -> Mapping[str, bool]:
    """Whether each role computes on the trainer's devices."""
    return {"trainer": True, "engine": placing.engine_mesh is None, "reference": placing.reference_mesh is None}


def apart(episode: Episode) -> float:
    """Tells members of a group apart whatever they say, so that each group has a gradient: a sum of what was sampled."""
    return float(episode.ids[episode.mask].sum() % 7) / 7


async def taught(config: JobConfig) -> tuple[Parts, Any]:
    """The parts of the training, placed nowhere in particular, and the parameters that a policy has learned, on the host."""
    shape = TaughtConfig(model=config.model, engine=config.engine, steps=config.taught_steps)
    num_tasks = max(config.steps * config.groups_per_step, config.timed_steps * config.timed_groups)
    parts = await taught_parts(shape, WorldConfig(delays=config.delays), num_tasks)
    parts.load()
    values = jax.tree.map(np.array, nnx.state(parts.model, nnx.Param))
    return replace(parts, reward={"answer": (exact_answer, 1.0), "apart": (apart, 0.2)}), values


def placed(engine: EngineConfig, parts: Parts, values: Any, placing: PlacingConfig) -> Parts:
    """The same parts on their devices.

    Args:
        engine: its shapes.
        parts: see ``taught``; they stay as they are.
        values: of the parameters.
        placing: which devices.
    """
    model = nnx.eval_shape(lambda: Transformer(parts.model.config, nnx.Rngs(0)))
    places = place(model, placing)
    put = jax.tree.map(lambda value, leaf: jax.device_put(value, leaf.sharding), values, nnx.state(model, nnx.Param))
    nnx.update(model, put)
    opened = Engine(model, engine, decode=parts.chat.decode, mesh=places.engine)
    return replace(parts, model=model, load=lambda: None, engine=opened, reference_mesh=places.reference)

"""The calculator with the real engine, its policy just taught to ask the tool, and tools that take their time."""

from dataclasses import replace

import jax
from flax import nnx
from pydantic import BaseModel, ConfigDict, Field

from flow import Run
from graphs.bench.scripted import WorldConfig, world_of
from graphs.calculator import CalculatorConfig, calculator
from graphs.parts import Parts
from graphs.sft import SftConfig, sft
from stages.envs.housed import on_loop
from stages.models.config import ModelConfig
from stages.rollout.config import EngineConfig
from stages.tasks.arithmetic import demonstrations
from stages.train.config import TrainerConfig


class TaughtConfig(BaseModel):
    """The policy, and how it is taught."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelConfig = CalculatorConfig().model
    """Shape of the policy: that of the calculator."""
    engine: EngineConfig = CalculatorConfig().engine
    """Shapes of the engine."""
    steps: int = Field(default=60, ge=0)
    """Steps of supervised training on demonstrations that all ask the tool; after these nearly every episode does. 0 leaves the
    policy as it is drawn."""
    examples_per_step: int = Field(default=16, ge=1)
    """Demonstrations in a step."""


async def taught_parts(config: TaughtConfig, world: WorldConfig, num_tasks: int) -> Parts:
    """Teach a policy, and give it with the environments of a world.

    Args:
        config: of the policy.
        world: delays of its tool, and episodes that fail.
        num_tasks: so many, for as many groups.
    """
    asked = CalculatorConfig(model=config.model, engine=config.engine, num_train_tasks=num_tasks)
    parts = calculator(asked).parts
    assert parts is not None
    parts.load()
    if config.steps:
        await _teach(config, parts)
    taught = jax.tree.map(lambda leaf: leaf.copy(), nnx.state(parts.model, nnx.Param))
    return replace(parts, load=lambda: nnx.update(parts.model, taught), make_env=on_loop(world_of(world)))


async def _teach(config: TaughtConfig, parts: Parts) -> None:
    rate = TrainerConfig(
        row_length=64, rows_per_microbatch=8, learning_rate=3e-3, warmup_steps=min(10, config.steps - 1), schedule="cosine",
        decay_steps=config.steps,
    )  # fmt: skip
    teaching = SftConfig(steps=config.steps, examples_per_step=config.examples_per_step, seed=0, trainer=rate)
    await Run(sft(teaching, parts, demonstrations(CalculatorConfig().tasks, 0, 1000, 1.0)).build(quiet=True)).finish()

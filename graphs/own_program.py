"""A program of one's own for the commonest case: tasks, an environment and tools, trained with GRPO.

The shorter way to what ``own_parts.py`` and ``program.py`` put together in some lines; whoever wants other phases writes those.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from graphs.own_parts import own_parts
from graphs.program import Program, training
from graphs.rl_config import RlConfig
from graphs.seeds import seeded
from stages.agents.sampling import SamplingConfig
from stages.envs.housed import MakeEnv
from stages.envs.pool import EnvPool
from stages.records import Task
from stages.train.config import TrainerConfig


class OwnConfig(BaseModel):
    """Settings of a program of one's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the run: every part's seed that is not given follows from it."""
    model: str | None = None
    """A Hugging Face folder, a .gguf file, or OWNER/NAME on the Hugging Face Hub; ``None`` for a tiny policy from scratch."""
    rl: RlConfig = RlConfig(
        steps=3,
        groups_per_step=4,
        group_size=4,
        max_concurrency=16,
        sampling=SamplingConfig(max_tokens_per_turn=16, max_turns=3),
        trainer=TrainerConfig(row_length=512),
    )
    """Reinforcement learning; as it is, only enough to see that everything turns."""


def own_program(name: str, config: OwnConfig, train: Sequence[Task], make_env: MakeEnv | EnvPool, **world: Any) -> Program:
    """Train on one's own world.

    Args:
        name: of the program.
        config: its settings.
        train: tasks to learn from.
        make_env: makes the environment of one episode.
        world: further arguments of ``own_parts``, such as ``tools``.
    """
    parts = own_parts(train, make_env, model=config.model, **world)
    return Program(name, config, parts, (training(seeded(config).rl, parts),), config.rl.max_lag)

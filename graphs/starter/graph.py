"""Training. Without a model a tiny policy starts from nothing: that only shows that everything turns."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from graphs.grpo import GrpoConfig
from graphs.own_parts import own_parts
from graphs.program import Program, training
from stages.agents.sampling import SamplingConfig
from stages.tasks.jsonl import JsonlTasks
from stages.train.config import TrainerConfig

from environment import Quiz
from tools import LOOK_UP

TASKS = list(JsonlTasks(Path(__file__).with_name("tasks.jsonl")))


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str | None = None
    """A Hugging Face folder, a .gguf file, or OWNER/NAME on the Hub; None for a tiny policy from scratch."""
    steps: int = 3
    """Optimizer steps."""


def train(settings: Settings) -> Program:
    parts = own_parts(TASKS, lambda task: Quiz(), tools=[LOOK_UP], model=settings.model)
    trainer = TrainerConfig(row_length=parts.engine.context_length)
    sampling = SamplingConfig(max_tokens_per_turn=16, max_turns=3)
    grpo = GrpoConfig(steps=settings.steps, groups_per_step=4, group_size=4, sampling=sampling, trainer=trainer)
    return Program("quiz", settings, parts, (training(grpo, parts),), max_lag=0)

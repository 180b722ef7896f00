"""Supervised training on demonstrations, through the same packing and the same trainer as reinforcement learning.

demonstrations >> written >> batches >> trainer
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from flow import Collect, Graph, Threads
from graphs.parts import Parts
from stages.batches.stage import Pack, PackConfig
from stages.losses.supervised import SupervisedLoss
from stages.records import Example
from stages.tasks.example_sets import ExampleSets
from stages.text.demonstrations import Demonstrate
from stages.train.bad_steps import bad_steps_of
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer


class SftConfig(BaseModel):
    """Supervised training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(default=100, ge=1)
    """Optimizer steps."""
    examples_per_step: int = Field(default=64, ge=1)
    """Demonstrations in a step."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Decides the order of the demonstrations, and nothing else; ``None`` takes the run's."""
    trainer: TrainerConfig = TrainerConfig(row_length=128, learning_rate=1e-3)
    """Optimizer and micro-batches."""


def sft(config: SftConfig, parts: Parts, examples: tuple[Example, ...], folder: Path | None = None) -> Graph:
    """Declare supervised training.

    Args:
        config: see ``SftConfig``.
        parts: the policy and its format.
        examples: the demonstrations.
        folder: of the run, for updates that were not applied; ``None`` keeps none.
    """
    graph = Graph("sft")
    demonstrations = graph.source("demonstrations", ExampleSets(examples, config.examples_per_step, config.seed or 0))
    written = graph.stage("written", Demonstrate(parts.chat, parts.tools), workers=2, order="input")
    loss = SupervisedLoss()
    batches = graph.stage("batches", Pack(PackConfig(row_length=config.trainer.row_length), loss.needs), order="input")
    trainer = graph.sink(
        "trainer",
        Trainer(parts.model, loss, config.trainer, bad_steps_of(folder, config.trainer)),
        collect=Collect(1, steps=config.steps),
        placement=Threads(),
    )
    demonstrations >> written >> batches >> trainer
    return graph

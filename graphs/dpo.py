"""Direct preference optimisation: pairs of replies, a frozen reference, the same packing and the same trainer as elsewhere.

preferences >> written >> reference >> batches >> trainer
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from flow import Collect, Graph, Threads
from graphs.parts import Parts
from graphs.scoring import Scoring, scoring
from graphs.scoring_config import ReferenceConfig
from stages.batches.stage import Pack, PackConfig
from stages.losses.preference import PreferenceLoss
from stages.records import Preference, Weights
from stages.tasks.preferences import Preferences
from stages.text.preferences import WritePreference
from stages.train.bad_steps import bad_steps_of
from stages.train.config import TrainerConfig
from stages.train.trainer import Trainer


class DpoConfig(BaseModel):
    """Training on preferences."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(default=100, ge=1)
    """Optimizer steps."""
    pairs_per_step: int = Field(default=32, ge=1)
    """Pairs in a step."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Decides the order of the pairs, and nothing else; ``None`` takes the run's."""
    loss: PreferenceLoss = PreferenceLoss()
    """How close to stay to the reference, and what a pair is worth."""
    reference: ReferenceConfig = ReferenceConfig()
    """The reference model: the policy as it was when training began."""
    trainer: TrainerConfig = TrainerConfig(row_length=256, learning_rate=5e-6)
    """Optimizer and micro-batches. A row holds both replies of a pair, each behind the prompt."""


def dpo(config: DpoConfig, parts: Parts, preferences: tuple[Preference, ...], folder: Path | None = None) -> Graph:
    """Declare training on preferences.

    Args:
        config: see ``DpoConfig``.
        parts: the policy and its format.
        preferences: the pairs.
        folder: of the run, for updates that were not applied; ``None`` keeps none.
    """
    graph, asked = Graph("dpo"), reference_of(config, parts)
    pairs = graph.source("preferences", Preferences(preferences, config.seed or 0))
    written = graph.stage("written", WritePreference(parts.chat, parts.tools), workers=2, order="input")
    packing = PackConfig(row_length=config.trainer.row_length)
    batches = graph.stage("batches", Pack(packing, config.loss.needs), order="input")
    learner = Trainer(
        asked.model, config.loss, config.trainer, bad_steps_of(folder, config.trainer), follow=asked.follow,
        samples=parts.samples,
    )  # fmt: skip
    collect = Collect(config.pairs_per_step, steps=config.steps)
    trainer = graph.sink("trainer", learner, collect=collect, placement=Threads())
    pairs >> written
    asked.after(graph, written) >> batches >> trainer
    weights = graph.latest("weights", Weights, load=asked.load(nobody))
    graph.feedback(trainer, weights, initial=lambda: learner.weights)
    return graph


async def nobody(weights: Weights, version: int) -> None:
    """Where an engine would load: none samples here."""


def reference_of(config: DpoConfig, parts: Parts) -> Scoring:
    """The reference model, at the temperature that demonstrations are scored at."""
    return scoring(parts, reference=config.reference, temperature=1.0, group_size=2, row_length=config.trainer.row_length)

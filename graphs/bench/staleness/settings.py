"""What the study trains: corrections by name, its settings, and the settings of each training. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.learnable import SAMPLING, learnable, trainer_of
from graphs.calculator import CalculatorConfig
from graphs.evaluate import EvaluateConfig
from graphs.rl_config import RlConfig
from stages.losses.policy import PolicyLoss
from stages.tools.delay import DelayConfig

GROUP_SIZE = 8
CorrectionName = Literal["clipped", "none", "truncated token", "truncated sequence", "masked", "decoupled"]
CAP = 2.0
"""Of the weights that are bounded."""


@dataclass(frozen=True)
class Correction:
    """What is done about samples of older weights.

    Attributes:
        what: a sentence for the reader.
        loss: settings of it.
        num_minibatches: updates of a step.
    """

    what: str
    loss: PolicyLoss
    num_minibatches: int = 1


CORRECTIONS: Mapping[CorrectionName, Correction] = {
    "clipped": Correction("the ratio to what sampled the token, clipped at 0.2 (PPO, GRPO; the default)", PolicyLoss()),
    "none": Correction("a ratio of 1 everywhere, which is allowed with a warning", PolicyLoss(against="proximal")),
    "truncated token": Correction(
        f"the importance weight of each token, at most {CAP:g}",
        PolicyLoss(against="proximal", correction="truncated", correction_cap=CAP),
    ),
    "truncated sequence": Correction(
        f"that of its whole sequence, at most {CAP:g}",
        PolicyLoss(against="proximal", correction="truncated", correction_level="sequence", correction_cap=CAP),
    ),
    "masked": Correction(
        f"the weight of each token, and no gradient where it is not from {1 / CAP:g} to {CAP:g} (IcePop)",
        PolicyLoss(against="proximal", correction="masked", correction_cap=CAP, correction_floor=1 / CAP),
    ),
    "decoupled": Correction(
        "decoupled PPO: the weight of each token without a bound, and two updates a step, whose ratio to the first weights of "
        "the step is clipped",
        PolicyLoss(against="proximal", correction="truncated", correction_cap=None),
        num_minibatches=2,
    ),
}


class PipelinesConfig(BaseModel):
    """Two pipelines by script, whose rates are fixed, beside the closed form."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(default=40, ge=2)
    """Steps of each; the lag is that of the later half."""
    scale: float = Field(default=1.0, gt=0)
    """What all their durations are multiplied by."""


class StalenessConfig(BaseModel):
    """The study."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = Field(default=(0, 1, 2), min_length=1)
    """Seeds; each has a warm start of its own, from which all its trainings begin."""
    max_lags: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0, 1, 2, 4, 8), min_length=1)
    """Bounds. With 0 there is nothing to correct: that is trained with the first correction alone, twice."""
    corrections: tuple[CorrectionName, ...] = Field(default=tuple(CORRECTIONS), min_length=1)
    """Corrections."""
    warm_steps: int = Field(default=300, ge=1)
    """Steps of the warm start."""
    steps: int = Field(default=32, ge=1)
    """Steps of reinforcement learning."""
    groups_per_step: int = Field(default=4, ge=1)
    """Groups of eight in a step."""
    learning_rate: float = Field(default=2e-3, gt=0)
    """Of reinforcement learning; the same in all trainings."""
    delay: DelayConfig = DelayConfig(scale_s=0.1, shape=1.2, max_s=2.0)
    """Of the tool."""
    evaluate_every: int = Field(default=4, ge=1)
    """Versions from one held-out score to the next; the last is scored too. After training, off its clock."""
    num_tasks: int = Field(default=256, ge=8)
    """Held-out tasks of each score."""
    target: float = Field(default=0.85, gt=0, le=1)
    """Held-out score, the time to which is told."""
    pipelines: PipelinesConfig | None = PipelinesConfig()
    """Of the closed form; ``None`` for the trainings alone."""
    folder: Path = Path("runs/bench/staleness")
    """Where warm starts and trainings are kept as they are done, so that a study that is interrupted goes on; removed when it
    has come to its end."""

    @property
    def concurrency(self) -> int:
        """Episodes at once: a place for each that a ticket of the widest bound lets be open."""
        return (max(self.max_lags) + 1) * self.groups_per_step * GROUP_SIZE


def program_config(config: StalenessConfig, seed: int) -> CalculatorConfig:
    """The program of a seed; reinforcement learning as it is with no lag and the first correction."""
    at_once = config.concurrency
    slots = min(at_once, 96)
    return learnable(
        seed=seed,
        warm_steps=config.warm_steps,
        delay=config.delay,
        # A cache for every episode at once, most of which wait for their tool: nothing is evicted, no bit depends on timing.
        slots=slots,
        kept=at_once - slots,
        evaluate=EvaluateConfig(num_tasks=config.num_tasks, max_concurrency=slots, sampling=SAMPLING),
        rl=RlConfig(
            steps=config.steps, groups_per_step=config.groups_per_step, group_size=GROUP_SIZE, max_concurrency=at_once,
            sampling=SAMPLING, trainer=trainer_of(config.learning_rate),
        ),
    )  # fmt: skip


def rl_config(base: RlConfig, max_lag: int, correction: CorrectionName) -> RlConfig:
    """Reinforcement learning with a bound and a correction, and all else as it is."""
    chosen = CORRECTIONS[correction]
    minibatches = min(chosen.num_minibatches, base.groups_per_step)
    trainer = base.trainer.model_copy(update={"num_minibatches": minibatches})
    return base.model_copy(update={"max_lag": max_lag, "loss": chosen.loss, "trainer": trainer})

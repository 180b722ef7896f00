"""The trainings that are compared: the calculator on small numbers, from one warm start, and what is changed of it."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from flow import Run
from graphs.bench.gate.verdict import Trial
from graphs.bench.learnable import SAMPLING, beginning_here, learnable, parts_of, scored, trainer_of, warm
from graphs.bench.witnessed import SeenStep, witnessed
from graphs.calculator import CalculatorConfig
from graphs.evaluate import EvaluateConfig
from graphs.heldout_config import HeldoutConfig
from graphs.parts import Parts
from graphs.rl import rl
from graphs.rl_config import RlConfig
from stages.tools.delay import DelayConfig
from stages.train.gate import Gate, GateConfig
from stages.train.stop import stop_in


class TrialsConfig(BaseModel):
    """The training that is changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of all trainings."""
    warm_steps: int = Field(default=300, ge=1)
    """Steps of the warm start that all share."""
    steps: int = Field(default=20, ge=1)
    """Steps of reinforcement learning."""
    groups_per_step: int = Field(default=8, ge=1)
    """Groups of eight in a step."""
    learning_rate: float = Field(default=4e-3, gt=0)
    """Of reinforcement learning; the same in all trainings."""
    evaluate_every: int = Field(default=4, ge=1)
    """Versions from one evaluation during training to the next."""
    num_tasks: int = Field(default=256, ge=8)
    """Held-out tasks of the score at the end; half of them are those of the evaluations during training."""
    tolerance: float = Field(default=0.2, gt=0, lt=1)
    """Most that the held-out success may fall: during training below the best evaluation so far, at its end below that of the
    training that was not changed."""
    concurrency: tuple[int, int] = (8, 48)
    """Episodes at once, of the training as it is and of those that are changed."""
    max_lag: int = Field(default=8, ge=1)
    """Versions that the harmful change lets episodes lag behind."""


def program_config(config: TrialsConfig) -> CalculatorConfig:
    """The small calculator."""
    most = max(config.concurrency)
    return learnable(
        seed=config.seed,
        warm_steps=config.warm_steps,
        delay=DelayConfig(scale_s=0.03, shape=1.2, max_s=0.6),
        # A slot for every episode at once, those of evaluations included: nothing is evicted, no bit depends on timing.
        slots=most + most // 2,
        evaluate=EvaluateConfig(num_tasks=config.num_tasks, max_concurrency=most, sampling=SAMPLING),
        rl=RlConfig(
            steps=config.steps, groups_per_step=config.groups_per_step, group_size=8, max_concurrency=config.concurrency[0],
            sampling=SAMPLING, trainer=trainer_of(config.learning_rate),
            heldout=HeldoutConfig(every=config.evaluate_every, num_tasks=config.num_tasks // 2, max_concurrency=most // 2),
            gate=GateConfig(heldout_drop=config.tolerance),
        ),
    )  # fmt: skip


def changes_of(config: TrialsConfig) -> Mapping[str, Mapping[str, Any]]:
    """What each training changes of reinforcement learning, by name; the first one changes nothing."""
    most = config.concurrency[1]
    loss = RlConfig().loss.model_copy(update={"against": "proximal"})
    uncorrected = {"max_concurrency": most, "max_lag": config.max_lag, "loss": loss}
    keeps = {"gate": GateConfig(action="keep_best", heldout_drop=config.tolerance)}
    return {
        BASE: {},
        HARMLESS: {"max_concurrency": most},
        HARMFUL: uncorrected,
        KEPT: uncorrected | keeps,
    }


BASE = "as it is"
HARMLESS = "more episodes at once"
HARMFUL = "large lag, uncorrected"
KEPT = "the same, its gate keeps the best"


async def warmed(config: TrialsConfig) -> Parts:
    """Model, engine and tasks, the model after the warm start; ``load`` puts it back to that."""
    asked = program_config(config)
    parts = parts_of(asked)
    await warm(asked, parts)
    return beginning_here(parts)


async def tried(name: str, config: TrialsConfig, parts: Parts) -> Trial:
    """Train with a change, from the warm start on, and score what came of it.

    Args:
        name: of the change, one of ``changes_of``.
        config: of the trainings.
        parts: see ``warmed``; their engine is open.
    """
    asked = program_config(config)
    settings = RlConfig.model_validate({**asked.rl.model_dump(), **_plain(changes_of(config)[name])})
    parts.load()
    gate, watcher, steps = Gate(settings.gate), _Evaluations(), list[SeenStep]()
    run = Run(witnessed(rl(settings, parts, gate=gate), steps.append).build(quiet=True), watchers=(watcher,))
    stopped: str | None = None
    try:
        await run.finish()
    except Exception as error:
        stop = stop_in(error)
        if stop is None:
            raise
        stopped = str(stop)
    lags = [lag for step in steps for lag in step.lags if lag is not None]
    best = None if gate.best is None else (int(gate.best["version"]), float(gate.best["heldout"]))
    return Trial(
        name=name, score=await scored(asked, parts), steps=len(steps),
        step_s=statistics.median(float(step.row["step_s"] or 0.0) for step in steps), stopped=stopped,
        evaluations=tuple(watcher.found), best=best, digests=tuple(step.digest for step in steps), lag=max(lags, default=0),
    )  # fmt: skip


class _Evaluations:
    """Keeps what the evaluations during training found."""

    def __init__(self) -> None:
        self.found: list[tuple[int, float, float, float]] = []

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Nothing is looked at."""

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        if node == "heldout_scores" and row.get("heldout") is not None:
            self.found.append((int(row["version"]), row["heldout"], row["heldout_low"], row["heldout_high"]))


def _plain(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.model_dump() if isinstance(value, BaseModel) else value for name, value in changes.items()}

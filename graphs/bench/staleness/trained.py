"""One training of the study: from the warm start of its seed, with one bound and one correction, and what is measured of it."""

import dataclasses
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from flax import nnx

from graphs.bench.learnable import scored
from graphs.bench.staleness.closed_form import Rates
from graphs.bench.staleness.settings import GROUP_SIZE, CorrectionName, rl_config
from graphs.bench.traced import Traced, traced
from graphs.bench.witnessed import SeenStep, witnessed
from graphs.calculator import CalculatorConfig
from graphs.parts import Parts
from graphs.rl import rl
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.scores import Score
from stages.tools.calculator import calculator_tool


class Wanted(msgspec.Struct, frozen=True):
    """Which training this is.

    Attributes:
        seed: of all that is drawn, the warm start included.
        max_lag: bound.
        correction: name of it.
        again: whether it repeats another one.
    """

    seed: int
    max_lag: int
    correction: CorrectionName
    again: bool = False

    @property
    def name(self) -> str:
        """Of its file, and in progress."""
        return f"seed {self.seed}, max_lag {self.max_lag}, {self.correction}{', again' if self.again else ''}"


class ScoreAt(msgspec.Struct, frozen=True):
    """A held-out score on the way.

    Attributes:
        version: that was scored, 0 for the warm start.
        seconds: of the run, at which it was there.
        success: share of the held-out tasks.
        low: lower end of its interval of 95 %.
        high: upper end.
    """

    version: int
    seconds: float
    success: float
    low: float
    high: float


class Trained(msgspec.Struct, frozen=True):
    """What came of a training.

    Attributes:
        wanted: which it is.
        seconds: from the beginning to the end of the last step.
        scores: from version 0 on; the last is that of the end.
        lags: of each group in the order of training.
        kl: of each step: estimate of KL(what sampled || what is trained), a mean over tokens.
        clipped: share of the tokens whose bound of the ratio binds, of each step.
        corrected: share of those whose importance weight was truncated or masked; ``None`` where there is none.
        goodput: tokens that had a gradient over those that were sampled, of each step.
        digests: of all bits of the parameters after each step.
        ratio: of the event model's time over that of the run.
        idle: share of the time in which the trainer did not work.
        rates: its own mean times, for the closed form.
        date: at the begin, UTC, ISO 8601.
        load: of the machine then, over a minute.
    """

    wanted: Wanted
    seconds: float
    scores: list[ScoreAt]
    lags: list[int]
    kl: list[float | None]
    clipped: list[float | None]
    corrected: list[float | None]
    goodput: list[float | None]
    digests: list[str]
    ratio: float
    idle: float
    rates: Rates
    date: str
    load: float

    @property
    def mean_lag(self) -> float:
        """In versions."""
        return sum(self.lags) / len(self.lags)

    def seconds_to(self, target: float) -> float | None:
        """Until a version was there that scores so much; ``None`` where none does."""
        return next((score.seconds for score in self.scores if score.success >= target), None)


@dataclass
class _Steps:
    """Sees the steps of a training."""

    ended: list[float] = dataclasses.field(default_factory=list[float])
    seen: list[SeenStep] = dataclasses.field(default_factory=list[SeenStep])

    def __call__(self, step: SeenStep) -> None:
        self.ended.append(time.monotonic())
        self.seen.append(replace(step, batches=()))  # episodes are not looked at, and would all be kept

    def seconds_of(self, step: int, run_s: float) -> float:
        """When a step ended, from 1, in a run that took so long until the last of them."""
        return run_s - (self.ended[-1] - self.ended[step - 1])

    def figures(self, name: str) -> list[float | None]:
        """One of the trainer's, of each step."""
        found = [step.row.get(name) for step in self.seen]
        return [float(value) if isinstance(value, int | float) else None for value in found]


async def trained(wanted: Wanted, program: CalculatorConfig, parts: Parts, every: int, start: Score) -> Trained:
    """Train, then score what there was on the way.

    Args:
        wanted: bound and correction.
        program: of its seed.
        parts: of that; ``load`` gives the warm start, and the engine is open.
        every: versions from one score to the next.
        start: of the warm start.
    """
    date, load = datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg()[0]
    config = rl_config(program.rl, wanted.max_lag, wanted.correction)
    steps = _Steps()
    parts.load()
    with tempfile.TemporaryDirectory() as folder:
        run = await traced(witnessed(rl(config, parts), steps), Path(folder) / "training.pftrace", parts.engine)
    scores = [ScoreAt(0, 0.0, start.success, start.low, start.high)]
    for step in steps.seen:
        if step.number % every == 0 or step.number == config.steps:
            score = await _scored(program, parts, step)
            seconds = steps.seconds_of(step.number, run.seconds)
            scores.append(ScoreAt(step.number, seconds, score.success, score.low, score.high))
    return Trained(
        wanted=wanted, seconds=run.seconds, scores=scores,
        lags=[lag for step in steps.seen for lag in step.lags if lag is not None],
        kl=steps.figures("kl"), clipped=steps.figures("clip_fraction"), corrected=steps.figures("correction_fraction"),
        goodput=steps.figures("goodput"), digests=[step.digest for step in steps.seen], ratio=run.judged.ratio,
        idle=run.idle_share(),
        rates=rates_of(run, config.max_concurrency, GROUP_SIZE, config.groups_per_step, config.max_lag),
        date=date, load=round(load, 2),
    )  # fmt: skip


async def _scored(program: CalculatorConfig, parts: Parts, step: SeenStep) -> Score:
    nnx.update(parts.model, step.weights.parameters)
    return await scored(program, undelayed(parts))


def undelayed(parts: Parts) -> Parts:
    """The parts with a tool that takes no time, which changes no answer: what is scored is not timed."""
    tool = calculator_tool()
    return replace(parts, make_env=on_loop(lambda task: ToolEnv([tool])))


def rates_of(run: Traced, places: int, group_size: int, groups_per_step: int, depth: int) -> Rates:
    """Mean times of a run, for the closed form."""

    def mean(node: str) -> float:
        found = [seconds for (name, _, _), seconds in run.judged.measured.table.items() if name == node]
        return sum(found) / len(found) if found else 0.0

    return Rates(
        places=places, group_size=group_size, groups_per_step=groups_per_step, depth=depth, member_s=mean("episodes"),
        group_s=run.played_s, add_s=mean("add"), finish_s=mean("finish"), load_s=mean("load"),
    )  # fmt: skip


def mean_of(values: Sequence[Any]) -> float | None:
    """Of what was measured; ``None`` of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None

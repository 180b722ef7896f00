"""The planner: it measures the calculator for some steps, says what other settings would come to, and they are run for real."""

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from graphs.bench.experiment import Cell, Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.rates import RATE
from graphs.bench.scripted import CONTEXT_LENGTH, MODEL, SAMPLING, TRAINER, WorldConfig
from graphs.bench.taught import TaughtConfig, taught_parts
from graphs.calculator import CalculatorConfig, calculator
from graphs.parts import Parts
from graphs.plan.measure import Probe, measure, probe
from graphs.plan.played import Predicted, predicted
from graphs.plan.processors import processors_left
from graphs.plan.times import Times
from graphs.plan.told import NOT_MODELLED
from graphs.report.plots import Plot
from graphs.report.series import Series
from graphs.rl_config import RlConfig
from stages.rollout.config import EngineConfig
from stages.tools.delay import DelayConfig

NEAR = 0.15
"""Most that a prediction may be off, as a share of the real rate."""
_RL = CalculatorConfig().rl.model_copy(update={"steps": 4, "seed": 0})
"""Training of the calculator, with few steps."""


class JobConfig(BaseModel):
    """A training that is measured, and what is predicted of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """What it is called in tables."""
    rl: RlConfig
    """What is measured, with few steps."""
    delay: DelayConfig = CalculatorConfig().delay
    """How long the calculator takes."""
    others: tuple[tuple[int, int], ...] = ((32, 0), (128, 1))
    """Episodes at once and max_lag of the settings that are predicted beside it, all else being equal."""


class PlanConfig(BaseModel):
    """What is measured and what is predicted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jobs: tuple[JobConfig, ...] = (
        JobConfig(name="calculator", rl=_RL),
        JobConfig(
            name="slow tool",
            rl=_RL.model_copy(update={"groups_per_step": 8, "max_concurrency": 64}),
            delay=DelayConfig(scale_s=0.3, shape=1.5, max_s=3.0),
            others=((16, 0), (64, 1)),
        ),
    )
    """The calculator as it is, where processors are what there is too little of; and with a tool that takes a second, where
    nearly all is waiting."""
    taught: TaughtConfig = TaughtConfig()
    """The policy, and how it is taught to ask its tool first."""


@dataclass(frozen=True)
class Pair:
    """One setting.

    Attributes:
        job: its name.
        config: of the training.
        paper: what was predicted.
        real: the run that followed.
    """

    job: str
    config: RlConfig
    paper: Predicted
    real: Probe

    @property
    def name(self) -> str:
        """The setting in a line."""
        return f"{self.job}, {self.config.max_concurrency} at once and max_lag {self.config.max_lag}"

    @property
    def off(self) -> float:
        """Predicted over real groups per minute, less one."""
        return self.paper.groups_per_minute / self.real.groups_per_minute - 1.0


@dataclass(frozen=True)
class Found:
    """What came of a job.

    Attributes:
        name: of it.
        probe: the run that was measured.
        times: measured.
        pairs: the measured settings first, run once more.
    """

    name: str
    probe: Probe
    times: Times
    pairs: Sequence[Pair]


def run(config: PlanConfig, tell: Tell) -> Findings:
    """Measure each job, predict all its settings, and only then run them."""
    total, done = 1 + sum(2 + len(settings_of(job)) for job in config.jobs), itertools.count()
    say = lambda what: tell(next(done), total, what)  # noqa: E731 - one line of what is told
    say("a policy is taught to ask its tool")
    taught = asyncio.run(taught_parts(config.taught, WorldConfig(), CalculatorConfig().num_train_tasks))
    return findings([_job(job, config, taught, say) for job in config.jobs])


def settings_of(job: JobConfig) -> Sequence[RlConfig]:
    """The settings that are predicted, those that are measured first."""
    others = [job.rl.model_copy(update={"max_concurrency": at_once, "max_lag": lag}) for at_once, lag in job.others]
    return [job.rl, *others]


def _job(job: JobConfig, config: PlanConfig, taught: Parts, say: Callable[[str], None]) -> Found:
    own = calculator(CalculatorConfig(model=config.taught.model, engine=config.taught.engine, delay=job.delay)).parts
    assert own is not None
    parts, wanted = replace(taught, make_env=own.make_env), settings_of(job)  # with the delays of the job
    say(f"{job.name}: training is measured")
    probe, times = asyncio.run(_measured(job, parts))
    say(f"{job.name}: other settings are played on paper")
    papers = [predicted(each, parts, times) for each in wanted]
    reals = asyncio.run(_run(job, wanted, parts, say))
    pairs = [Pair(job.name, each, paper, real) for each, paper, real in zip(wanted, papers, reals, strict=True)]
    return Found(job.name, probe, times, pairs)


async def _measured(job: JobConfig, parts: Parts) -> tuple[Probe, Times]:
    parts.load()
    with tempfile.TemporaryDirectory() as folder:
        return await measure(job.rl, parts, Path(folder) / "probe.pftrace")


async def _run(job: JobConfig, wanted: Sequence[RlConfig], parts: Parts, say: Callable[[str], None]) -> list[Probe]:
    found: list[Probe] = []
    async with parts.engine:
        for each in wanted:
            say(f"{job.name}: {each.max_concurrency} episodes at once, max_lag {each.max_lag}, for real")
            parts.load()
            found.append(await probe(each, parts))
    return found


def findings(found: Sequence[Found]) -> Findings:
    """What the runs say.

    Args:
        found: by job.
    """
    pairs = [pair for job in found for pair in job.pairs]
    told = "; ".join(
        f"{pair.name}: {pair.paper.groups_per_minute:.0f} groups a minute predicted, {pair.real.groups_per_minute:.0f} run, "
        f"{pair.off:+.1%}"
        for pair in pairs
    )
    return Findings(
        answer=f"One setting of each job was measured, then all were predicted, then run: {told}.",
        claims=[
            *(Claim(f"{pair.name}: share by which the prediction was off", abs(pair.off), NEAR, "most") for pair in pairs),
            *(Claim(f"{job.name}: share by which the measured run was off on paper", abs(_again(job))) for job in found),
        ],
        tables=[_rates(pairs), *(_measurements(job) for job in found)],
        plots=[_plot(job) for job in found],
        notes=[
            "All predictions of a job were made before any of the runs that they are compared with. They know of one run with "
            "one setting, and of engine and trainer working alone for a moment.",
            "The first setting of each job is the one that was measured; it is run again like the others.",
            "On paper the same graph runs in virtual time, with the engine's own scheduler and the trainer's own packing; "
            "steps take as long as they took alone, and longer where they meet on the same processors.",
            *NOT_MODELLED,
        ],
        detail={job.name: _detail(job) for job in found},
    )


def _again(job: Found) -> float:
    return job.pairs[0].paper.groups_per_minute / job.probe.groups_per_minute - 1.0


def _detail(job: Found) -> dict[str, Any]:
    runs = [
        {
            "max_concurrency": pair.config.max_concurrency,
            "max_lag": pair.config.max_lag,
            "paper_s": list(pair.paper.ends_s),
            "real_s": _ends_s(pair.real),
            "real_processors": processors_left(pair.real.moments[0], pair.real.moments[-1]),
            "real_turns": sum(len(episode.turns) for group in pair.real.groups for episode in group.episodes),
        }
        for pair in job.pairs
    ]
    return {"probe_s": _ends_s(job.probe), "late_s": job.times.late_s, "processors": job.times.processors, "runs": runs}


def _ends_s(real: Probe) -> list[float]:
    first, *ends = real.moments
    return [(end.at_ns - first.at_ns) / 1e9 for end in ends]


def _rates(pairs: Sequence[Pair]) -> Table:
    columns = [
        Column("job", "job"), Column("at_once", "episodes at once"), Column("lag", "max_lag"),
        Column("paper", "predicted", RATE), Column("real", "run", RATE), Column("off", "off by", "share"),
        Column("idle", "trainer idle, predicted", "share"), Column("engine", "engine busy, predicted", "share"),
    ]  # fmt: skip
    rows: list[dict[str, Cell]] = [
        {
            "job": pair.job,
            "at_once": pair.config.max_concurrency,
            "lag": pair.config.max_lag,
            "paper": pair.paper.groups_per_minute,
            "real": pair.real.groups_per_minute,
            "off": pair.off,
            "idle": pair.paper.trainer_idle,
            "engine": pair.paper.engine_busy,
        }
        for pair in pairs
    ]
    return Table("a row for each setting", columns, rows)


def _measurements(job: Found) -> Table:
    columns = [Column("what", "what"), Column("seconds", "alone", "ms"), Column("demand", "processors kept busy")]
    engine, trainer = job.times.engine, next(iter(job.times.trainer.values()))
    rows: list[dict[str, Cell]] = [
        *(_part(f"decode step, {rows} rows", took, engine.demand) for rows, took in sorted(engine.decode_s.items())),
        *(_part(f"prefill step, {rows} rows", took, engine.demand) for rows, took in sorted(engine.prefill_s.items())),
        *(
            _part(f"gradient of {rows} rows of {length} tokens", took, trainer.demand)
            for (rows, length), took in trainer.gradient_s.items()
        ),
        _part("update", trainer.finish_s, 1.0),
        _part("the event loop, for a turn of an episode", job.times.turn_s, 1.0),
    ]
    note = f"Other programs left {job.times.processors:.3g} processors to this one meanwhile."
    return Table(f"{job.name}: what was measured", columns, rows, note)


def _part(what: str, seconds: float, demand: float) -> dict[str, Any]:
    return {"what": what, "seconds": 1e3 * seconds, "demand": demand}


def _plot(job: Found) -> Plot:
    steps = range(1, 1 + min(len(pair.paper.ends_s) for pair in job.pairs))
    return Plot(
        title=f"End of each step, {job.name}",
        meaning="seconds from the beginning, predicted and run",
        xs=[float(step) for step in steps],
        series=[
            series
            for pair in job.pairs
            for series in (
                Series(f"{pair.name}, predicted", list(pair.paper.ends_s[: len(steps)])),
                Series(f"{pair.name}, run", _ends_s(pair.real)[: len(steps)]),
            )
        ],
        unit="s",
        x_unit="step",
    )


SHORT = PlanConfig(
    jobs=(
        JobConfig(
            name="tiny",
            rl=RlConfig(
                steps=2, groups_per_step=4, group_size=4, max_concurrency=8, seed=0, sampling=SAMPLING, trainer=TRAINER
            ),
            others=((4, 0), (8, 1)),
        ),
    ),
    taught=TaughtConfig(
        model=MODEL, engine=EngineConfig(slots=8, context_length=CONTEXT_LENGTH, prefill_rows=8, prefill_chunk=16), steps=2
    ),
)  # fmt: skip
PLAN = Experiment(
    name="plan",
    title="Planner: rates of other settings are predicted from one measured run, and then run",
    question=(
        "Does headrace plan --measure say how fast training would be with settings that it has not seen? The calculator is "
        "trained for some steps, and its engine and trainer work alone for a moment; then the same with a slow tool. With "
        "these times the graph is played in virtual time, with the same settings, with a quarter of the episodes at once, and "
        "with a lag of one version. Then each of them is run, and groups per minute are compared. A planner is of use where it "
        "is nearer than the settings differ."
    ),
    config=PlanConfig,
    short=SHORT,
    run=run,
)

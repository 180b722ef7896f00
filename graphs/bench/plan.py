"""The planner: it measures the calculator for some steps, says what other settings would come to, and they are run for real."""

import asyncio
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
from graphs.plan.times import Times
from graphs.plan.told import NOT_MODELLED
from graphs.report.plots import Plot
from graphs.report.series import Series
from graphs.rl_config import RlConfig
from stages.rollout.config import EngineConfig

NEAR = 0.15
"""Most that a prediction may be off, as a share of the real rate."""


class PlanConfig(BaseModel):
    """What is measured and what is predicted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rl: RlConfig = CalculatorConfig().rl.model_copy(update={"steps": 4, "seed": 0})
    """Training that is measured: that of the calculator, with few steps."""
    others: tuple[tuple[int, int], ...] = ((32, 0), (128, 1))
    """Episodes at once and max_lag of the settings that are predicted beside it, all else being equal."""
    taught: TaughtConfig = TaughtConfig()
    """The policy, and how it is taught to ask its tool first."""


@dataclass(frozen=True)
class Pair:
    """One setting.

    Attributes:
        config: of the training.
        paper: what was predicted.
        real: the run that followed.
    """

    config: RlConfig
    paper: Predicted
    real: Probe

    @property
    def off(self) -> float:
        """Predicted over real groups per minute, less one."""
        return self.paper.groups_per_minute / self.real.groups_per_minute - 1.0


@dataclass(frozen=True)
class Found:
    """All of it.

    Attributes:
        probe: the run that was measured.
        times: measured.
        pairs: the measured settings first, run once more.
    """

    probe: Probe
    times: Times
    pairs: Sequence[Pair]


def run(config: PlanConfig, tell: Tell) -> Findings:
    """Measure, predict all settings, and only then run them."""
    wanted = settings_of(config)
    total = 3 + len(wanted)
    tell(0, total, "a policy is taught to ask its tool")
    parts, (found, times) = asyncio.run(_measured(config, lambda: tell(1, total, "training is measured")))
    tell(2, total, "other settings are played on paper")
    papers = [predicted(each, parts, times) for each in wanted]
    reals = asyncio.run(_run(wanted, parts, lambda done, what: tell(3 + done, total, what)))
    pairs = [Pair(each, paper, real) for each, paper, real in zip(wanted, papers, reals, strict=True)]
    return findings(config, Found(found, times, pairs))


def settings_of(config: PlanConfig) -> Sequence[RlConfig]:
    """The settings that are predicted, those that are measured first."""
    others = [config.rl.model_copy(update={"max_concurrency": at_once, "max_lag": lag}) for at_once, lag in config.others]
    return [config.rl, *others]


async def _measured(config: PlanConfig, begins: Callable[[], None]) -> tuple[Parts, tuple[Probe, Times]]:
    num_tasks = CalculatorConfig().num_train_tasks
    taught = await taught_parts(config.taught, WorldConfig(), num_tasks)
    own = calculator(CalculatorConfig(model=config.taught.model, engine=config.taught.engine)).parts
    assert own is not None
    parts = replace(taught, make_env=own.make_env)  # with the delays of the calculator itself
    begins()
    parts.load()
    with tempfile.TemporaryDirectory() as folder:
        return parts, await measure(config.rl, parts, Path(folder) / "probe.pftrace")


async def _run(wanted: Sequence[RlConfig], parts: Parts, tell: Callable[[int, str], None]) -> list[Probe]:
    found: list[Probe] = []
    async with parts.engine:
        for number, each in enumerate(wanted):
            tell(number, f"{each.max_concurrency} episodes at once, max_lag {each.max_lag}, for real")
            parts.load()
            found.append(await probe(each, parts))
    return found


def findings(config: PlanConfig, found: Found) -> Findings:
    """What the runs say.

    Args:
        config: they were made with.
        found: they.
    """
    told = "; ".join(
        f"{_name(pair.config)}: {pair.paper.groups_per_minute:.0f} groups a minute predicted, "
        f"{pair.real.groups_per_minute:.0f} run, {pair.off:+.1%}"
        for pair in found.pairs
    )
    same, *others = found.pairs
    return Findings(
        answer=f"Measured with {_name(config.rl)}, then predicted, then run: {told}.",
        claims=[
            Claim("the measured settings, run again: share by which the prediction was off", abs(same.off), NEAR, "most"),
            *(
                Claim(f"{_name(pair.config)}: share by which the prediction was off", abs(pair.off), NEAR, "most")
                for pair in others
            ),
            Claim(
                "the measured run: share by which it was off on paper",
                abs(same.paper.groups_per_minute / found.probe.groups_per_minute - 1.0),
            ),
        ],
        tables=[_rates(found), _measurements(found.times)],
        plots=[_plot(found.pairs)],
        notes=[
            "All predictions were made before any of the runs that they are compared with. They know of one run with other "
            "settings, and of engine and trainer working alone for a moment.",
            "On paper the same graph runs in virtual time, with the engine's own scheduler and the trainer's own packing; "
            "steps take as long as they took alone, and longer where they meet on the same processors.",
            *NOT_MODELLED,
        ],
        detail={
            "runs": [
                {
                    "max_concurrency": pair.config.max_concurrency,
                    "max_lag": pair.config.max_lag,
                    "paper_s": list(pair.paper.ends_s),
                    "real_s": _ends_s(pair.real),
                }
                for pair in found.pairs
            ],
            "probe_s": _ends_s(found.probe),
        },
    )


def _name(config: RlConfig) -> str:
    return f"{config.max_concurrency} at once and max_lag {config.max_lag}"


def _ends_s(real: Probe) -> list[float]:
    first, *ends = real.moments
    return [(end.at_ns - first.at_ns) / 1e9 for end in ends]


def _rates(found: Found) -> Table:
    columns = [
        Column("at_once", "episodes at once"), Column("lag", "max_lag"), Column("paper", "predicted", RATE),
        Column("real", "run", RATE), Column("off", "off by", "share"), Column("idle", "trainer idle, predicted", "share"),
        Column("engine", "engine busy, predicted", "share"),
    ]  # fmt: skip
    rows: list[dict[str, Cell]] = [
        {
            "at_once": pair.config.max_concurrency,
            "lag": pair.config.max_lag,
            "paper": pair.paper.groups_per_minute,
            "real": pair.real.groups_per_minute,
            "off": pair.off,
            "idle": pair.paper.trainer_idle,
            "engine": pair.paper.engine_busy,
        }
        for pair in found.pairs
    ]
    note = f"The first has the settings that were measured; the measured run itself had {found.probe.groups_per_minute:.3g}."
    return Table("a row for each setting", columns, rows, note)


def _measurements(times: Times) -> Table:
    columns = [Column("what", "what"), Column("seconds", "alone", "ms"), Column("demand", "processors kept busy")]
    rows: list[dict[str, Cell]] = [
        *(
            _part(f"decode step, {rows} rows", took, times.engine.demand)
            for rows, took in sorted(times.engine.decode_s.items())
        ),
        *(
            _part(f"prefill step, {rows} rows", took, times.engine.demand)
            for rows, took in sorted(times.engine.prefill_s.items())
        ),
        *(
            _part(f"gradient of {rows} rows of {length} tokens", took, each.demand)
            for each in times.trainer.values()
            for (rows, length), took in each.gradient_s.items()
        ),
        _part("update", next(iter(times.trainer.values())).finish_s, 1.0),
        _part("the event loop, for a turn of an episode", times.turn_s, 1.0),
    ]
    return Table("what was measured", columns, rows)


def _part(what: str, seconds: float, demand: float) -> dict[str, Any]:
    return {"what": what, "seconds": 1e3 * seconds, "demand": demand}


def _plot(pairs: Sequence[Pair]) -> Plot:
    steps = range(1, 1 + min(len(pair.paper.ends_s) for pair in pairs))
    return Plot(
        title="End of each step",
        meaning="seconds from the beginning, predicted and run",
        xs=[float(step) for step in steps],
        series=[
            series
            for pair in pairs
            for series in (
                Series(f"{_name(pair.config)}, predicted", list(pair.paper.ends_s[: len(steps)])),
                Series(f"{_name(pair.config)}, run", _ends_s(pair.real)[: len(steps)]),
            )
        ],
        unit="s",
        x_unit="step",
    )


SHORT = PlanConfig(
    rl=RlConfig(
        steps=2, groups_per_step=4, group_size=4, max_concurrency=8, seed=0, sampling=SAMPLING, trainer=TRAINER
    ),
    others=((4, 0), (8, 1)),
    taught=TaughtConfig(
        model=MODEL, engine=EngineConfig(slots=8, context_length=CONTEXT_LENGTH, prefill_rows=8, prefill_chunk=16), steps=2
    ),
)  # fmt: skip
PLAN = Experiment(
    name="plan",
    title="Planner: rates of other settings are predicted from one measured run, and then run",
    question=(
        "Does headrace plan --measure say how fast training would be with settings that it has not seen? The calculator is "
        "trained for some steps, and its engine and trainer work alone for a moment. With these times the same graph is played "
        "in virtual time, with the same settings, with a quarter of the episodes at once, and with a lag of one version. Then "
        "each of them is run, and groups per minute are compared. A planner is of use where it is nearer than the settings "
        "differ."
    ),
    config=PlanConfig,
    short=SHORT,
    run=run,
)

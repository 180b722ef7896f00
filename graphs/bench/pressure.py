"""Back-pressure: the trainer slowed, then the environment, then the judge, and what piles up where.

Edges are bounded, so nothing may grow with the time that somebody is slow. And the verdict that is read from the run's own
trace has to name who it was.
"""

import asyncio
import tempfile
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.delays import DelaysConfig
from graphs.bench.experiment import Cell, Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.rates import COLUMNS, RATE, of_the_model, rates
from graphs.bench.scripted import WorldConfig, run_scripted, settings_of, warm_up
from graphs.bench.traced import Traced
from graphs.grpo_sync import synchronous
from graphs.report.plots import Plot
from graphs.report.series import Series
from graphs.rl_config import RlConfig

NOBODY = "nobody"
NAMES: Mapping[str, str] = {"trainer": "sink trainer", "environment": "stage episodes", "judge": "stage rewards"}
"""Who is slowed, and the node that it is, as the verdict names it."""
MOST_GROWN_MB = 32.0
"""Growth of resident memory from the first quarter of a run on. What the edges of such a run can hold is less than 1 MB; the
rest is room for the allocator and the trace's writer."""
_POINTS = 120


class PressureConfig(BaseModel):
    """Back-pressure."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: WorldConfig = WorldConfig(
        decode_s=0.1,
        delays=DelaysConfig(seconds=(0.02, 0.1, 0.5)),
        load_s=0.02,
        group_s=0.05,
        step_s=0.1,
        judge_s=0.1,
        judges=2,
    )
    """Durations where nobody is slowed."""
    slower: float = Field(default=8.0, gt=1)
    """How many times as long whoever is slowed takes."""
    steps: int = Field(default=8, ge=2)
    """Steps of each run."""
    groups_per_step: int = Field(default=4, ge=1)
    """Groups of four in a step."""
    max_concurrency: int = Field(default=8, ge=1)
    """Episodes at once."""


@dataclass(frozen=True)
class Pair:
    """One slowed part, on both schedules.

    Attributes:
        slowed: who it is.
        ours: with a lag of one version.
        sync: the baseline.
    """

    slowed: str
    ours: Traced
    sync: Traced


def run(config: PressureConfig, tell: Tell) -> Findings:
    """Measure with nobody slowed, then each in turn."""
    return asyncio.run(_measure(config, tell))


async def _measure(config: PressureConfig, tell: Tell) -> Findings:
    found: list[Pair] = []
    slowed = [NOBODY, *NAMES]
    with tempfile.TemporaryDirectory() as folder:
        await warm_up(config.world, Path(folder))
        for number, who in enumerate(slowed):
            world, runs = slowed_world(config, who), list[Traced]()
            for at, settings in enumerate(_schedules(config, world)):
                tell(2 * number + at, 2 * len(slowed), f"{who} slowed, {'grpo_sync' if at else 'max_lag=1'}")
                runs.append(await run_scripted(world, settings, Path(folder) / f"{who} {at}.pftrace"))
            found.append(Pair(who, *runs))
    return findings(config, found)


def slowed_world(config: PressureConfig, who: str) -> WorldConfig:
    """The world in which one part takes so many times as long."""
    world, slower = config.world, config.slower
    longer = world.delays.model_copy(update={"seconds": tuple(slower * seconds for seconds in world.delays.seconds)})
    changes = {
        NOBODY: {},
        "trainer": {"group_s": slower * world.group_s, "step_s": slower * world.step_s},
        "environment": {"delays": longer},
        "judge": {"judge_s": slower * world.judge_s},
    }
    return world.model_copy(update=changes[who])


def _schedules(config: PressureConfig, world: WorldConfig) -> tuple[RlConfig, RlConfig]:
    ours = settings_of(
        world, steps=config.steps, groups_per_step=config.groups_per_step, max_concurrency=config.max_concurrency, max_lag=1
    )
    return ours, synchronous(ours)


def findings(config: PressureConfig, found: Sequence[Pair]) -> Findings:
    """What the runs say.

    Args:
        config: they were made with.
        found: one for nobody, then one for each who is slowed.
    """
    runs = [run for pair in found for run in (pair.ours, pair.sync)]
    named = {pair.slowed: _named(pair.ours) for pair in found}
    grown = [mb for mb in map(grown_mb, runs) if mb is not None]
    right = sum(named[who] == wanted for who, wanted in NAMES.items())
    over = sum(_over(run) for run in runs)
    return Findings(
        answer=(
            f"Whoever is {config.slower:g} times as slow, no edge ever held more than its declared capacity "
            f"({over} did), and the verdict from the run's own trace named {right} of the {len(NAMES)} that were slowed."
        ),
        claims=[
            Claim("edges that ever held more than their declared capacity, of all runs", over, 0, "equal"),
            *(Claim(f"what bounded the run with the {who} slowed, as the verdict says", named[who], wanted, "equal")
              for who, wanted in NAMES.items()),
            Claim("MB that resident memory grew by after the first quarter of a run, the most of all",
                  max(grown) if grown else None, MOST_GROWN_MB, "most"),
            of_the_model("every run", runs),
        ],
        tables=[_table(found), _edges(found)],
        plots=[*(_depths(pair) for pair in found), _ages(found)],
        notes=[
            f"Slowed means {config.slower:g} times as long: the trainer's groups and steps, the calls of the tool, or the "
            f"judge, a stage that holds a unit of a pool of {config.world.judges} while it judges a group.",
            "The most that an edge held is counted at each hand-over, not sampled; the curves have ten values a second.",
            "An open group is one that was begun and is not complete: its age is bounded by the time of its slowest episode "
            "and of those before it in the line, since no more groups are opened than there are tickets.",
            "What the verdict names is whose doubling would bring the most, by its own replay of the trace. The judge is the "
            "node rewards, whose work was slowed; its pool is another lever on the same wait.",
        ],
        detail={
            pair.slowed: {
                "named": named[pair.slowed], "run_s": pair.ours.seconds, "model_s": pair.ours.judged.model.seconds,
                "grpo_sync_run_s": pair.sync.seconds, "grpo_sync_model_s": pair.sync.judged.model.seconds,
            }
            for pair in found
        },
    )  # fmt: skip


def _named(run: Traced) -> str | None:
    bound = run.verdict.bound
    return None if bound is None else f"{bound.kind} {bound.name}"


def _over(run: Traced) -> int:
    """Edges that held more than they may."""
    return sum(most > capacity for _, capacity, most in _bounds(run))


def _bounds(run: Traced) -> list[tuple[str, int, int]]:
    """Name of each edge, its capacity, and the most that it held."""
    spec, nodes = run.plan.spec, run.summary.nodes
    return [
        (edge.name, run.plan.capacities[edge.name].items or 0, nodes[edge.target].high_water) for edge in spec.edges
    ]  # fmt: skip


def grown_mb(run: Traced) -> float | None:
    """Growth of resident memory from the first quarter of the time to its most after it; ``None`` where it was not measured."""
    values = run.counter("host memory")
    early = [mb for at_s, mb in values if at_s <= run.seconds / 4]
    late = [mb for at_s, mb in values if run.seconds / 4 < at_s <= run.seconds]
    # A counter is written when it changes, so one without a later value stood where it was.
    return max([*late, early[-1]]) - early[-1] if early else None


def _table(found: Sequence[Pair]) -> Table:
    columns = [
        Column("slowed", "slowed"), *COLUMNS,
        Column("named", "the verdict names"), Column("gain", "twice that brings", "share"),
        Column("second", "and next"), Column("second_gain", "which brings", "share"),
        Column("idle", "trainer idle", "share"), Column("oldest", "oldest open group", "s"),
        Column("grown", "memory grew by", "MB"),
        Column("sync", "grpo_sync", RATE), Column("sync_ratio", "its run over model", "share"),
    ]  # fmt: skip
    return Table("a row for each part that is slowed", columns, [_row(pair) for pair in found])


def _row(pair: Pair) -> dict[str, Cell]:
    bound, second = pair.ours.verdict.bound, next(iter(pair.ours.verdict.runners_up), None)
    return {
        "slowed": pair.slowed, **rates(pair.ours), "named": _named(pair.ours), "gain": None if bound is None else bound.gain,
        "idle": pair.ours.idle_share(), "oldest": pair.ours.oldest_group_s, "grown": grown_mb(pair.ours),
        "second": None if second is None else f"{second.kind} {second.name}",
        "second_gain": None if second is None else second.gain,
        "sync": pair.sync.groups_per_minute, "sync_ratio": pair.sync.judged.ratio,
    }  # fmt: skip


def _edges(found: Sequence[Pair]) -> Table:
    columns = [
        Column("edge", "edge"), Column("capacity", "capacity", "items"), *(Column(p.slowed, p.slowed, "items") for p in found),
    ]  # fmt: skip
    bounds = {pair.slowed: _bounds(pair.ours) for pair in found}
    rows = [
        {"edge": name, "capacity": capacity, **{who: bounds[who][at][2] for who in bounds}}
        for at, (name, capacity, _) in enumerate(bounds[NOBODY])
    ]
    return Table("the most that each edge held, by who was slowed", columns, rows)


def _depths(pair: Pair) -> Plot:
    """Depths over time of the edges that held anything to speak of."""
    run = pair.ours
    times = _grid(run.seconds)
    curves = {name: _sampled(run.counter(f"{name} depth"), times) for name, _, most in _bounds(run) if most > 1}
    return Plot(
        title=f"Depths with {pair.slowed} slowed",
        meaning="items that wait on each edge",
        xs=times,
        series=[Series(name, values) for name, values in curves.items()],
        unit="items",
        x_unit="s",
    )


def _ages(found: Sequence[Pair]) -> Plot:
    times = _grid(max(pair.ours.seconds for pair in found))
    return Plot(
        title="Oldest open group",
        meaning="age of the oldest group that is begun and not complete, by who is slowed",
        xs=times,
        series=[Series(pair.slowed, [_age(pair.ours, at_s) for at_s in times]) for pair in found],
        unit="s",
        x_unit="s",
    )


def _grid(seconds: float) -> list[float]:
    return [seconds * at / _POINTS for at in range(_POINTS + 1)]


def _sampled(values: Sequence[tuple[float, float]], times: Sequence[float]) -> list[float | None]:
    """What a counter stood at; ``None`` before it was known."""
    known = [at_s for at_s, _ in values]
    places = [bisect_right(known, at_s) for at_s in times]
    return [values[place - 1][1] if place else None for place in places]


def _age(run: Traced, at_s: float) -> float | None:
    """Age of the oldest group that is open at a time; 0 where none is, ``None`` after the end."""
    if at_s > run.seconds:
        return None
    at_ns = run.judged.measured.began_ns + at_s * 1e9
    return max(((at_ns - start) / 1e9 for start, end in run.groups_open() if start <= at_ns < end), default=0.0)


PRESSURE = Experiment(
    name="pressure",
    title="back-pressure: trainer, environment and judge slowed in turn",
    question=(
        "What piles up where somebody is slow, and does the run say who it is? The trainer, then the environment, then a judge "
        "with a pool takes eight times as long. Depths of the edges, the age of the oldest open group and resident memory have "
        "to stay bounded, and the verdict that is read from the run's own trace has to name the part that was slowed. The same "
        "stages behind a barrier over the whole batch (grpo_sync) stand beside, each run against a "
        "discrete-event model with its times."
    ),
    config=PressureConfig,
    short=PressureConfig(
        world=WorldConfig(
            decode_s=0.01, delays=DelaysConfig(seconds=(0.002, 0.01, 0.05)), load_s=0.002, group_s=0.005, step_s=0.01,
            judge_s=0.01,
        ),
        steps=2,
        groups_per_step=2,
        max_concurrency=4,
    ),
    run=run,
)  # fmt: skip

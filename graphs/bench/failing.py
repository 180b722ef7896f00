"""Failures: 5 % of the episodes fail at once and are tried once more. What that costs, and that nothing else is different."""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.delays import DelaysConfig
from graphs.bench.experiment import Cell, Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.rates import COLUMNS, of_the_model, rates
from graphs.bench.scripted import WorldConfig, run_scripted, settings_of, warm_up
from graphs.bench.traced import Traced
from graphs.grpo_sync import synchronous
from graphs.rl_config import RlConfig

KEPT = 0.93
"""Of the groups per minute without failures."""


class FailingConfig(BaseModel):
    """Episodes that fail."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: WorldConfig = WorldConfig(
        decode_s=0.1, delays=DelaysConfig(seconds=(0.05, 0.2, 1.0)), load_s=0.02, group_s=0.02, step_s=0.1
    )
    """Durations."""
    failing: float = Field(default=0.05, gt=0, lt=1)
    """Share of the episodes that fail at once."""
    steps: int = Field(default=20, ge=1)
    """Steps of each run. The slowest episode takes over a second, and the end of a run may wait for one: in a run of ten
    seconds that alone would be a tenth, more than what is to be told apart."""
    groups_per_step: int = Field(default=8, ge=1)
    """Groups of four in a step."""
    max_concurrency: int = Field(default=24, ge=1)
    """Episodes at once: fewer than those of a step, so that places are what there is too little of."""


@dataclass(frozen=True)
class Pair:
    """One schedule, without failures and with them.

    Attributes:
        schedule: its name.
        none: nothing fails.
        some: a share of the episodes fails at once.
    """

    schedule: str
    none: Traced
    some: Traced

    @property
    def kept(self) -> float:
        """Groups per minute with failures over those without."""
        return self.some.groups_per_minute / self.none.groups_per_minute

    @property
    def same_place(self) -> float:
        """Share of the places in the order of training that have the same task."""
        pairs = zip(self.none.trained_tasks, self.some.trained_tasks, strict=True)
        return sum(one == other for one, other in pairs) / self.none.num_groups


def run(config: FailingConfig, tell: Tell) -> Findings:
    """Measure each schedule with failures and without."""
    return asyncio.run(_measure(config, tell))


async def _measure(config: FailingConfig, tell: Tell) -> Findings:
    found: list[Pair] = []
    schedules, worlds = schedules_of(config), (config.world, config.world.model_copy(update={"failing": config.failing}))
    with tempfile.TemporaryDirectory() as folder:
        await warm_up(config.world, Path(folder))
        for number, (name, settings) in enumerate(schedules.items()):
            runs: list[Traced] = []
            for at, world in enumerate(worlds):
                tell(2 * number + at, 2 * len(schedules), f"{name}, {world.failing:.0%} failing")
                runs.append(await run_scripted(world, settings, Path(folder) / f"{name} {at}.pftrace"))
            found.append(Pair(name, *runs))
    return findings(config, found)


def schedules_of(config: FailingConfig) -> Mapping[str, RlConfig]:
    """Settings by the name of the schedule, each with one retry."""
    ahead = settings_of(
        config.world, steps=config.steps, groups_per_step=config.groups_per_step, max_concurrency=config.max_concurrency,
        max_lag=1, member_retries=1,
    )  # fmt: skip
    return {"max_lag=1": ahead, "max_lag=0": ahead.model_copy(update={"max_lag": 0}), "grpo_sync": synchronous(ahead)}


def findings(config: FailingConfig, found: Sequence[Pair]) -> Findings:
    """What the runs say.

    Args:
        config: they were made with.
        found: one for each schedule, that with a lag first.
    """
    share = f"{config.failing:.0%}"
    ahead = found[0]
    in_order = [pair for pair in found if pair.schedule != ahead.schedule]
    return Findings(
        answer=(
            f"With {share} of the episodes failing at once and one retry, groups come at {ahead.kept:.1%} of the rate without "
            f"failures ({', '.join(f'{pair.schedule}: {pair.kept:.1%}' for pair in in_order)}); "
            f"{_failed(ahead.some)} episodes failed, and every group was trained whole."
        ),
        claims=_claims(share, found),
        tables=[_table(config, found)],
        notes=[
            "Which episodes fail is drawn from task and member; a retry takes the time that the first try would have taken, so "
            "both runs of a schedule have the same drawn times.",
            "A failed member is issued again behind the members that wait already. The event model issues it first, which is "
            "better: that difference is part of what a run with failures loses to its model.",
            "With a lag, which group goes next depends on what is ready, so the order of training may differ between any two "
            "runs; without, it is the order of birth.",
        ],
        detail={
            pair.schedule: {"none_s": pair.none.seconds, "some_s": pair.some.seconds, "failed": _failed(pair.some)}
            for pair in found
        },
    )  # fmt: skip


def _claims(share: str, found: Sequence[Pair]) -> list[Claim]:
    ahead, in_order, every = found[0], found[1:], len(found)
    kept = min(pair.kept for pair in found)
    same_order = sum(pair.same_place == 1.0 for pair in in_order)
    return [
        Claim(f"groups per minute with {share} failing over those without, the least of all schedules", kept, KEPT),
        Claim("schedules in which the same tasks were trained", sum(map(_same_tasks, found)), every, "equal"),
        Claim("schedules in which every group has its four members", sum(map(_all_whole, found)), every, "equal"),
        Claim(
            "schedules in which failures came, each was tried again, and nothing lost",
            sum(map(_retried, found)),
            every,
            "equal",
        ),
        Claim("of those without lag, where tasks were trained in the same order", same_order, len(in_order), "equal"),
        Claim("of the same, where every step has the same loss", sum(map(_same_losses, in_order)), len(in_order), "equal"),
        Claim(f"{ahead.schedule}: share of the places in the order of training with the same task", ahead.same_place),
        of_the_model("every run", (run for pair in found for run in (pair.none, pair.some))),
    ]


def _table(config: FailingConfig, found: Sequence[Pair]) -> Table:
    columns = [
        Column("schedule", "schedule"), Column("failing", "episodes that fail", "share"), Column("failed", "failed"),
        Column("retried", "tried again"), *COLUMNS, Column("kept", "of the rate without", "share"),
    ]  # fmt: skip
    rows = [_row(pair, run, config.failing) for pair in found for run in (pair.none, pair.some)]
    return Table("a row for each run", columns, rows)


def _failed(run: Traced) -> int:
    return len(run.judged.measured.failed)


def _same_tasks(pair: Pair) -> bool:
    return sorted(pair.none.trained_tasks) == sorted(pair.some.trained_tasks)


def _all_whole(pair: Pair) -> bool:
    return all(size == 4 for run in (pair.none, pair.some) for size in run.scored.sizes.values())


def _retried(pair: Pair) -> bool:
    """Whether failures there were, as many retries, and nothing given up."""
    nodes = pair.some.summary.nodes
    lost = sum(count for node in nodes.values() for reason, count in node.dropped.items() if reason != "surplus")
    return 0 < _failed(pair.some) == _tried_again(pair.some) and lost == 0 == _failed(pair.none)


def _tried_again(run: Traced) -> int:
    return sum(retry == 1 for node, _, retry in run.judged.measured.table if node == "episodes")


def _same_losses(pair: Pair) -> bool:
    return [row["loss"] for row in pair.none.rows] == [row["loss"] for row in pair.some.rows]


def _row(pair: Pair, run: Traced, failing: float) -> dict[str, Cell]:
    some = run is pair.some
    return {
        "schedule": pair.schedule,
        "failing": failing if some else 0.0,
        "failed": _failed(run),
        "retried": _tried_again(run),
        **rates(run),
        "kept": pair.kept if some else None,
    }


FAILING = Experiment(
    name="failing",
    title="5 % of the episodes fail at once, and are tried once more",
    question=(
        "What does it cost that 5 % of the episodes fail as soon as they begin, with one retry, and is anything else "
        "different? The same training runs with and without failures, with the same drawn times: with a lag of one version, "
        "and behind a barrier over the whole batch (grpo_sync). What was trained, how large groups were and in which order "
        "they went is compared, and each run is held against a discrete-event model of the same rules with the same times."
    ),
    config=FailingConfig,
    short=FailingConfig(
        world=WorldConfig(
            decode_s=0.005, delays=DelaysConfig(seconds=(0.002, 0.008, 0.04)), load_s=0.002, group_s=0.002, step_s=0.005
        ),
        failing=0.2,
        steps=3,
        groups_per_step=2,
        max_concurrency=4,
    ),
    run=run,
)

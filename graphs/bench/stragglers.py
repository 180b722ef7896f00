"""Stragglers: tools that take 50 ms, 500 ms or 5 s, more and more episodes at once, and complete groups per minute.

Once with a policy by script, whose every duration is known, once with the real engine and trainer of the calculator.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from graphs.bench.delays import DelaysConfig
from graphs.bench.experiment import Cell, Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.model.declared import line_of
from graphs.bench.model.event_model import Model
from graphs.bench.rates import COLUMNS, RATE, of_the_model, rates
from graphs.bench.scripted import CONTEXT_LENGTH, MODEL, TRAINER, Sleeps, WorldConfig, run_scripted, settings_of, warm_up
from graphs.bench.taught import TaughtConfig, taught_parts
from graphs.bench.traced import Traced, traced
from graphs.grpo_sync import synchronous
from graphs.parts import Parts
from graphs.report.plots import Plot
from graphs.report.series import Series
from graphs.rl import rl
from graphs.rl_config import RlConfig
from stages.rollout.config import EngineConfig
from stages.train.config import TrainerConfig

GROUP_SIZE = 4
SCRIPTED, ENGINE = "policy by script", "real engine and trainer"


class StragglersConfig(BaseModel):
    """Stragglers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: WorldConfig = WorldConfig(group_s=0.02, delays=DelaysConfig(seed=2998))
    """Durations of the policy by script, and of the tool, which both policies ask. The seed was searched for: with it the first
    4, 12, 24 and 64 tasks have about as many calls of each length as the shares say, so that rows of few groups compare."""
    concurrency: tuple[int, ...] = (1, 4, 16, 64)
    """Episodes at once, in each of the settings. A step has as many groups as fill them, at least one."""
    groups: tuple[int, ...] = (4, 12, 24, 64)
    """Groups of four that are trained in each of them; whole steps."""
    max_lag: int = Field(default=1, ge=0)
    """Of our schedule; the synchronous baseline has 0."""
    engine: TaughtConfig | None = TaughtConfig()
    """The real engine; ``None`` for the policy by script alone."""

    @model_validator(mode="after")
    def _whole_steps(self) -> Self:
        if len(self.concurrency) != len(self.groups) or any(
            groups % groups_per_step(at_once) for at_once, groups in zip(self.concurrency, self.groups, strict=False)
        ):
            raise ValueError(
                f"expected a number of groups for each concurrency, whole steps of a quarter of it; got concurrency="
                f"{self.concurrency} and groups={self.groups}; change either"
            )
        return self


@dataclass(frozen=True)
class Pair:
    """One setting, on both schedules.

    Attributes:
        at_once: episodes.
        ours: with overlap.
        sync: the baseline.
        sleeps_s: seconds that the model takes for our schedule with nothing but the sleeps; ``None`` where it knows no such.
    """

    at_once: int
    ours: Traced
    sync: Traced
    sleeps_s: float | None


def groups_per_step(at_once: int) -> int:
    """Groups that fill so many places."""
    return max(1, at_once // GROUP_SIZE)


def run(config: StragglersConfig, tell: Tell) -> Findings:
    """Measure both policies in every setting."""
    return asyncio.run(_measure(config, tell))


async def _measure(config: StragglersConfig, tell: Tell) -> Findings:
    places = range(len(config.concurrency))
    total = len(places) if config.engine is None else 2 * len(places) + 2
    found: dict[str, list[Pair]] = {SCRIPTED: []}
    with tempfile.TemporaryDirectory() as folder:
        await warm_up(config.world, Path(folder))
        for at in places:
            tell(at, total, f"{SCRIPTED}, {config.concurrency[at]} episodes at once")
            found[SCRIPTED].append(await _scripted(config, at, Path(folder)))
        if config.engine is not None:
            tell(len(places), total, "a policy is taught to ask its tool")
            parts = await taught_parts(config.engine, config.world, max(config.groups))
            tell(len(places) + 1, total, "the engine opens")
            async with parts.engine:
                found[ENGINE] = []
                for at in places:
                    tell(len(places) + 2 + at, total, f"{ENGINE}, {config.concurrency[at]} episodes at once")
                    found[ENGINE].append(await _real(config, at, parts, Path(folder)))
    return findings(config, found)


def _schedules(config: StragglersConfig, at: int, **more: TrainerConfig) -> tuple[RlConfig, RlConfig]:
    """Ours and the baseline."""
    at_once = config.concurrency[at]
    batch = groups_per_step(at_once)
    ours = settings_of(
        config.world, max_concurrency=at_once, groups_per_step=batch, steps=config.groups[at] // batch,
        max_lag=config.max_lag, **more,
    )  # fmt: skip
    return ours, synchronous(ours)


async def _scripted(config: StragglersConfig, at: int, folder: Path) -> Pair:
    runs: list[Traced] = []
    for settings in _schedules(config, at):
        runs.append(await run_scripted(config.world, settings, folder / f"{SCRIPTED} {at} {settings.barrier}.pftrace"))
    ours, sync = runs
    sleeps = Sleeps(config.world, _schedules(config, at)[0], ours.scored.tasks)
    return Pair(config.concurrency[at], ours, sync, Model(line_of(ours.plan), sleeps).run().seconds)


async def _real(config: StragglersConfig, at: int, parts: Parts, folder: Path) -> Pair:
    runs: list[Traced] = []
    for settings in _schedules(config, at, trainer=TRAINER):
        parts.load()
        here = replace(parts, train=parts.train[: config.groups[at]])
        path = folder / f"{ENGINE} {at} {settings.barrier}.pftrace"
        runs.append(await traced(rl(settings, here), path, parts.engine))
    return Pair(config.concurrency[at], *runs, None)


def findings(config: StragglersConfig, found: Mapping[str, Sequence[Pair]]) -> Findings:
    """What the runs say.

    Args:
        config: they were made with.
        found: settings in the order of the config, by policy.
    """
    most = {policy: pairs[-1] for policy, pairs in found.items()}
    told = "; ".join(
        f"{policy}: {pair.ours.groups_per_minute:.0f} complete groups per minute, {pair.ours.judged.ratio:.1%} of the event "
        f"model's, where the synchronous baseline has {pair.sync.groups_per_minute:.0f}"
        for policy, pair in most.items()
    )
    return Findings(
        answer=f"With {config.concurrency[-1]} episodes at once and tool calls of {_lengths(config)} mixed, {told}.",
        claims=[claim for policy, pairs in found.items() for claim in _claims(policy, pairs)],
        tables=[_table(policy, pairs) for policy, pairs in found.items()],
        plots=[_plot(policy, pairs) for policy, pairs in found.items()],
        notes=_notes(config),
        detail={policy: [_detail(pair) for pair in pairs] for policy, pairs in found.items()},
    )


def _claims(policy: str, pairs: Sequence[Pair]) -> list[Claim]:
    times = pairs[-1].ours.groups_per_minute / pairs[-1].sync.groups_per_minute
    sleeps = [pair.sleeps_s / pair.ours.seconds for pair in pairs if pair.sleeps_s is not None]
    return [
        of_the_model(policy, (run for pair in pairs for run in (pair.ours, pair.sync))),
        *([Claim(f"{policy}: the same over what the model gives with nothing but the sleeps", min(sleeps))] if sleeps else []),
        Claim(f"{policy}: groups per minute over those of grpo_sync, with {pairs[-1].at_once} episodes at once", times),
    ]


def _table(policy: str, pairs: Sequence[Pair]) -> Table:
    sleeps = [Column("sleeps", "of nothing but the sleeps", "share")] if pairs[0].sleeps_s is not None else []
    columns = [
        Column("at_once", "episodes at once"), *COLUMNS, *sleeps,
        Column("engine", "engine busy", "share"),
        Column("oldest", "oldest open group", "s"),
        Column("sync", "grpo_sync", RATE),
        Column("sync_ratio", "its run over model", "share"),
        Column("times", "over grpo_sync"),
    ]  # fmt: skip
    return Table(f"{policy}: a row for each number of episodes at once", columns, [_row(pair) for pair in pairs])


def _row(pair: Pair) -> dict[str, Cell]:
    sleeps = {} if pair.sleeps_s is None else {"sleeps": pair.sleeps_s / pair.ours.seconds}
    return {
        "at_once": pair.at_once,
        **rates(pair.ours),
        **sleeps,
        "engine": pair.ours.engine_busy,
        "oldest": pair.ours.oldest_group_s,
        "sync": pair.sync.groups_per_minute,
        "sync_ratio": pair.sync.judged.ratio,
        "times": pair.ours.groups_per_minute / pair.sync.groups_per_minute,
    }


def _plot(policy: str, pairs: Sequence[Pair]) -> Plot:
    return Plot(
        title=f"Complete groups per minute, {policy}",
        meaning="groups that were trained over the time to the last step, by episodes at once",
        xs=[pair.at_once for pair in pairs],
        series=[
            Series("event model", [pair.ours.model_groups_per_minute for pair in pairs]),
            Series("headrace", [pair.ours.groups_per_minute for pair in pairs]),
            Series("grpo_sync", [pair.sync.groups_per_minute for pair in pairs]),
        ],
        unit=RATE,
        x_unit="episodes at once",
    )


def _notes(config: StragglersConfig) -> list[str]:
    shares = ", ".join(f"{share:.0%}" for share in config.world.delays.shares)
    return [
        f"A call of the tool takes {_lengths(config)}, with shares {shares}, "
        "drawn from its task, member and turn alone, so that it is the same in every run and for every system.",
        "The event model is given the times that each attempt took in the run, its waits inside included, and the rules; what "
        "a run takes longer was lost between stages. With nothing but the sleeps it is also charged with what attempts "
        "themselves add; with the real engine no such figure exists.",
        "Groups in a step fill the episodes at once, so the baseline never has a place that it could not use. Few groups are "
        "trained where few run at once, so those rows say more of the drawn delays than of a rate.",
        "The engine is busy while it makes a step for at least one turn, the policy by script while it has at least one turn "
        "to say.",
        "The real engine and trainer share the processor with all else; that slows attempts, and the model has those times.",
    ]


def _lengths(config: StragglersConfig) -> str:
    texts = [f"{s:g} s" if s >= 1 else f"{1000 * s:g} ms" for s in config.world.delays.seconds]
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]


def _detail(pair: Pair) -> dict[str, Any]:
    runs = {"ours": pair.ours, "grpo_sync": pair.sync}
    return {
        "at_once": pair.at_once,
        **{
            name: {"run_s": run.seconds, "model_s": run.judged.model.seconds, "trained": run.trained_tasks}
            for name, run in runs.items()
        },
    }


SHORT = StragglersConfig(
    world=WorldConfig(decode_s=0.005, load_s=0.0, step_s=0.0, delays=DelaysConfig(seconds=(0.005, 0.02, 0.1))),
    concurrency=(1, 8),
    groups=(2, 6),
    engine=TaughtConfig(
        model=MODEL, engine=EngineConfig(slots=8, context_length=CONTEXT_LENGTH, prefill_rows=8, prefill_chunk=16), steps=2
    ),
)
STRAGGLERS = Experiment(
    name="stragglers",
    title="tools that take 50 ms, 500 ms or 5 s: complete groups per minute",
    question=(
        "How many complete groups a minute does training get where a few tool calls take a hundred times as long as most, with "
        "1, 4, 16 and 64 episodes at once? A schedule that waits for the slowest episode of a batch wastes the others' places. "
        "The same graph runs with a bounded lag and behind a barrier over the whole batch (grpo_sync), with the same delays, "
        "and each run is held against a discrete-event model of the same rules with the same times."
    ),
    config=StragglersConfig,
    short=SHORT,
    run=run,
)

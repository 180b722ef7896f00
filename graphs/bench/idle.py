"""Trainer idle share: how long the trainer waits on each schedule, before a policy by script whose capacity suffices."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.delays import DelaysConfig
from graphs.bench.experiment import Cell, Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.rates import COLUMNS, of_the_model, rates
from graphs.bench.scripted import WorldConfig, run_scripted, settings_of, warm_up
from graphs.bench.traced import Traced
from graphs.grpo_sync import synchronous
from graphs.rl_config import RlConfig

AHEAD, ON_POLICY, SYNC = "max_lag=1", "max_lag=0", "grpo_sync"
MOST_IDLE = 0.05
"""Share of the time, with one version ahead."""


class IdleConfig(BaseModel):
    """Idle share of the trainer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: WorldConfig = WorldConfig(
        decode_s=0.1, delays=DelaysConfig(seconds=(0.02, 0.08, 0.2)), load_s=0.02, group_s=0.05, step_s=0.1
    )
    """Durations. The slowest episode, two turns and the longest call, takes 0.4 s, a step of the trainer 0.5 s: so the policy
    can always have the next step ready, if it is let."""
    steps: int = Field(default=40, ge=1)
    """Steps of each run."""
    groups_per_step: int = Field(default=8, ge=1)
    """Groups of four in a step."""
    max_concurrency: int = Field(default=64, ge=1)
    """Episodes at once: those of two steps."""


def run(config: IdleConfig, tell: Tell) -> Findings:
    """Measure the schedules."""
    return asyncio.run(_measure(config, tell))


async def _measure(config: IdleConfig, tell: Tell) -> Findings:
    found: dict[str, Traced] = {}
    schedules = schedules_of(config)
    with tempfile.TemporaryDirectory() as folder:
        await warm_up(config.world, Path(folder))
        for done, (name, settings) in enumerate(schedules.items()):
            tell(done, len(schedules), name)
            found[name] = await run_scripted(config.world, settings, Path(folder) / f"{name}.pftrace")
    return findings(config, found)


def schedules_of(config: IdleConfig) -> Mapping[str, RlConfig]:
    """Settings by the name of the schedule."""
    ahead = settings_of(
        config.world, steps=config.steps, groups_per_step=config.groups_per_step, max_concurrency=config.max_concurrency,
        max_lag=1,
    )  # fmt: skip
    return {AHEAD: ahead, ON_POLICY: ahead.model_copy(update={"max_lag": 0}), SYNC: synchronous(ahead)}


def findings(config: IdleConfig, found: Mapping[str, Traced]) -> Findings:
    """What the runs say.

    Args:
        config: they were made with.
        found: runs by the name of the schedule.
    """
    idle = {name: run.idle_share() for name, run in found.items()}
    return Findings(
        answer=(
            f"With one version ahead the trainer is idle {idle[AHEAD]:.1%} of the time, strictly on-policy "
            f"{idle[ON_POLICY]:.1%}, behind a barrier over the whole batch {idle[SYNC]:.1%}."
        ),
        claims=[
            Claim("idle share of the trainer at max_lag=1, its first wait included", idle[AHEAD], MOST_IDLE, "most"),
            Claim("the same of grpo_sync", idle[SYNC]),
            of_the_model("every schedule", found.values()),
        ],
        tables=[
            Table(
                "a row for each schedule",
                [Column("schedule", "schedule"), Column("idle", "trainer idle", "share"), *COLUMNS],
                [_row(name, run) for name, run in found.items()],
            )
        ],
        notes=[
            "Idle is all of the time up to the end of the last step in which the trainer takes neither a group nor a step, the "
            "wait for the first episodes included.",
            f"Durations are fixed: a turn takes {config.world.decode_s:g} s for however many episodes, a group "
            f"{config.world.group_s:g} s of the trainer and the end of a step {config.world.step_s:g} s, on whatever schedule; "
            "the trainer is the real one, made to take at least so long, on a model so small that it hardly ever takes longer.",
            "How long a real policy keeps a trainer waiting is another question: here its capacity suffices by construction, "
            "so what is left is what the schedule makes it wait.",
        ],
        detail={name: {"run_s": run.seconds, "model_s": run.judged.model.seconds} for name, run in found.items()},
    )  # fmt: skip


def _row(name: str, run: Traced) -> dict[str, Cell]:
    return {"schedule": name, "idle": run.idle_share(), **rates(run)}


IDLE = Experiment(
    name="idle",
    title="how long the trainer waits, by schedule",
    question=(
        "What share of the time does the trainer wait, if the policy could always have the next step ready? The policy is by "
        "script and sleeps, with a fixed configuration in which the slowest episode takes less than a step of the trainer. So "
        "what it waits is the schedule's doing: a bounded lag of one version, none, and a barrier over the whole batch "
        "(grpo_sync), each beside a discrete-event model of the same rules with the same times."
    ),
    config=IdleConfig,
    short=IdleConfig(
        world=WorldConfig(
            decode_s=0.01, delays=DelaysConfig(seconds=(0.002, 0.008, 0.02)), load_s=0.002, group_s=0.005, step_s=0.01
        ),
        steps=4,
        groups_per_step=2,
        max_concurrency=16,
    ),
    run=run,
)

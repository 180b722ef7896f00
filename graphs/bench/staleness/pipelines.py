"""Two pipelines of real parts whose rates are fixed by script, one that the engine bounds and one that the trainer does."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphs.bench.delays import DelaysConfig
from graphs.bench.scripted import WorldConfig, run_scripted, settings_of, warm_up
from graphs.bench.staleness.closed_form import Rates
from graphs.bench.staleness.settings import PipelinesConfig
from graphs.bench.staleness.trained import mean_of, rates_of

GROUP_SIZE, GROUPS_PER_STEP = 4, 4


@dataclass(frozen=True)
class Script:
    """A pipeline.

    Attributes:
        world: its durations.
        places: episodes at once.
        max_lag: bound.
    """

    world: WorldConfig
    places: int
    max_lag: int


@dataclass(frozen=True)
class Pipeline:
    """What came of it.

    Attributes:
        lag: mean of the later half of the steps.
        rates: its own mean times.
        max_lag: bound.
    """

    lag: float
    rates: Rates
    max_lag: int


def scripts(config: PipelinesConfig) -> Mapping[str, Script]:
    """By what bounds them. Calls differ in length, so that episodes do not go on in step with each other."""
    scale = config.scale

    def world(group_s: float, step_s: float) -> WorldConfig:
        delays = DelaysConfig(seconds=(0.1 * scale, 0.2 * scale, 0.4 * scale), shares=(0.4, 0.4, 0.2))
        return WorldConfig(
            decode_s=0.05 * scale, delays=delays, load_s=0.02 * scale, group_s=group_s * scale, step_s=step_s * scale
        )

    # An episode takes 0.3 s on average. 16 places begin a group of four every 0.08 s, and 48 every 0.03 s.
    return {
        "the engine": Script(world(group_s=0.01, step_s=0.03), 16, 4),
        "the trainer": Script(world(group_s=0.05, step_s=0.1), 48, 2),
    }


async def run_pipelines(config: PipelinesConfig) -> Mapping[str, Pipeline]:
    """Run both."""
    found: dict[str, Pipeline] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, script in scripts(config).items():
            if not found:
                await warm_up(script.world, Path(folder))
            settings = settings_of(
                script.world, steps=config.steps, groups_per_step=GROUPS_PER_STEP, max_concurrency=script.places,
                max_lag=script.max_lag,
            )  # fmt: skip
            run = await run_scripted(script.world, settings, Path(folder) / f"{name}.pftrace")
            lag = mean_of([row["lag_mean"] for row in run.rows[config.steps // 2 :]])
            assert lag is not None
            rates = rates_of(run, script.places, GROUP_SIZE, GROUPS_PER_STEP, script.max_lag)
            found[name] = Pipeline(lag, rates, script.max_lag)
    return found

"""The experiment ``staleness``: trainings with each bound and correction, one after another, each kept as it is done."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from graphs.bench.experiment import Experiment, Findings, Tell
from graphs.bench.learnable import beginning_here, parts_of, scored, warm
from graphs.bench.staleness.kept import Kept
from graphs.bench.staleness.pipelines import Pipeline, run_pipelines
from graphs.bench.staleness.settings import PipelinesConfig, StalenessConfig, program_config
from graphs.bench.staleness.told import findings
from graphs.bench.staleness.trained import Trained, Wanted, trained, undelayed
from stages.tools.delay import DelayConfig


def run(config: StalenessConfig, tell: Tell) -> Findings:
    """Train what is not there yet, and say what all of it says."""
    kept = {seed: Kept(config, seed) for seed in config.seeds}
    found, pipelines, num_before = asyncio.run(measured(config, tell, kept))
    told = findings(config, found, pipelines, num_before)
    for each in kept.values():
        each.remove()
    return told


def wanted_of(config: StalenessConfig, seed: int) -> Iterator[Wanted]:
    """The trainings of a seed, in order."""
    first = config.corrections[0]
    for max_lag in config.max_lags:
        if max_lag == 0:
            yield Wanted(seed, 0, first)
            yield Wanted(seed, 0, first, again=True)
        else:
            yield from (Wanted(seed, max_lag, name) for name in config.corrections)


async def measured(
    config: StalenessConfig, tell: Tell, kept: Mapping[int, Kept]
) -> tuple[list[Trained], Mapping[str, Pipeline], int]:
    """Trainings, pipelines, and how many of the former were there before.

    Args:
        config: of the study.
        tell: hears how far it is.
        kept: what there is of each seed, and gets what is done.
    """
    total = sum(1 + len(list(wanted_of(config, seed))) for seed in config.seeds) + (config.pipelines is not None)
    done, num_before, found = 0, 0, list[Trained]()
    pipelines: Mapping[str, Pipeline] = {}
    if config.pipelines is not None:
        tell(done, total, "two pipelines by script")
        pipelines = await run_pipelines(config.pipelines)
        done += 1
    for seed in config.seeds:
        part = lambda at, what, done=done: tell(done + at, total, what)  # noqa: E731 - of this seed
        seed_found, seed_before = await _of_seed(config, seed, kept[seed], part)
        found, num_before, done = [*found, *seed_found], num_before + seed_before, done + 1 + len(seed_found)
    return found, pipelines, num_before


async def _of_seed(
    config: StalenessConfig, seed: int, kept: Kept, tell: Callable[[int, str], None]
) -> tuple[Sequence[Trained], int]:
    """Trainings of a seed, and how many were there before."""
    wanted = list(wanted_of(config, seed))
    found = {each: kept.training(each) for each in wanted}
    num_before = sum(each is not None for each in found.values())
    if num_before < len(wanted):
        program = program_config(config, seed)
        parts = parts_of(program)
        tell(0, f"seed {seed}: the warm start")
        if not kept.warm_start(parts):
            await warm(program, parts)
            kept.keep_warm_start(parts)
        parts = beginning_here(parts)
        async with parts.engine:
            start = kept.start()
            if start is None:
                parts.load()
                start = await scored(program, undelayed(parts))
                kept.keep_start(start)
            for at, each in enumerate(wanted):
                if found[each] is None:
                    tell(1 + at, each.name)
                    found[each] = one = await trained(each, program, parts, config.evaluate_every, start)
                    kept.keep_training(one)
    return [one for one in found.values() if one is not None], num_before


STALENESS = Experiment(
    name="staleness",
    title="Staleness: what a bound on the lag buys, and what each correction saves",
    question=(
        "How stale may episodes be? A wider bound on the lag keeps the trainer busy while slow tools answer, and what it "
        "trains on was sampled by older weights. From one warm start for each seed the small calculator is trained with "
        "max_lag 0, 1, 2, 4 and 8 and with each correction, with tools whose delays have a heavy tail. Told are the time to a "
        "held-out score, the score at the end, the lag, how far the policy had moved, how much was clipped or thrown away, and "
        "whether a repeated run gives the same bits. The mean lag is held against what arithmetic says of it."
    ),
    config=StalenessConfig,
    short=StalenessConfig(
        seeds=(0,),
        max_lags=(0, 2),
        corrections=("clipped", "decoupled"),
        warm_steps=60,
        steps=4,
        groups_per_step=2,
        delay=DelayConfig(scale_s=0.01, shape=1.2, max_s=0.1),
        evaluate_every=2,
        num_tasks=16,
        pipelines=PipelinesConfig(steps=12, scale=0.5),
        folder=Path("runs/bench/staleness-short"),
    ),
    run=run,
    long=True,
)

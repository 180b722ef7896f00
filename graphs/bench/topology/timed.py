"""Times the stages of the training on one device, behind the whole-batch barrier, where nobody computes beside the trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from flow.trace import PerfettoWriter, Trace, read_trace, recording
from graphs.bench.topology.job import JobConfig, placed
from graphs.bench.topology.simulated import Script, Times, Turn, mean
from graphs.bench.traced import Traced, traced
from graphs.grpo_sync import synchronous
from graphs.parts import Parts
from graphs.placing import PlacingConfig
from graphs.rl import rl
from stages.records import Episode, Group


@dataclass(frozen=True)
class Rate:
    """How fast a run was.

    Attributes:
        groups_per_minute: that were trained.
        model: the same of the event model with the times of this run.
        ratio: run over model.
    """

    groups_per_minute: float
    model: float
    ratio: float


@dataclass
class Episodes:
    """A watcher that keeps the episodes that were scored.

    Attributes:
        groups: by birth number.
    """

    groups: dict[int, Group] = field(default_factory=dict[int, Group])

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Keep the groups."""
        for group in values if node == "rewards" else ():
            assert isinstance(group, Group)
            self.groups[group.birth] = group

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Nothing."""


async def timed(config: JobConfig, parts: Parts, values: Any, folder: Path) -> tuple[Times, Rate]:
    """Run the synchronous baseline on one device, and read its times.

    Args:
        config: of the training.
        parts: see ``job.taught``.
        values: of the parameters that it begins with.
        folder: for the trace.
    """
    run, episodes, engine = await rated(config, parts, values, PlacingConfig(), folder / "timed.pftrace", sync=True)
    return _times(run, episodes, engine), rate_of(run)


async def rated(
    config: JobConfig, parts: Parts, values: Any, placing: PlacingConfig, path: Path, *, sync: bool
) -> tuple[Traced, Episodes, Trace]:
    """Run the training that is timed on some devices.

    Args:
        config: of the training.
        parts: see ``job.taught``.
        values: of the parameters that it begins with.
        placing: the devices.
        path: the file of its trace.
        sync: as the synchronous baseline; else with a lag of one version.

    Returns:
        The run, its episodes, and the trace of its engine.
    """
    here = placed(config.timed_engine, parts, values, placing)
    settings = config.training(
        steps=config.timed_steps, groups_per_step=config.timed_groups, max_lag=1, max_concurrency=config.timed_concurrency
    )
    here = replace(here, train=here.train[: config.timed_steps * config.timed_groups])
    episodes, engine = Episodes(), path.with_suffix(".engine.pftrace")
    with PerfettoWriter(engine) as recorder:
        with recording(recorder):  # an engine records where it is told to when it is entered
            await here.engine.__aenter__()
        try:
            run = await traced(rl(synchronous(settings) if sync else settings, here), path, here.engine, (episodes,))
        finally:
            await here.engine.__aexit__()
    return run, episodes, read_trace(engine)


def rate_of(run: Traced) -> Rate:
    """Beside the event model."""
    return Rate(run.groups_per_minute, run.model_groups_per_minute, run.judged.ratio)


def _times(run: Traced, episodes: Episodes, engine: Trace) -> Times:
    prefill, decode = (_steps_of(engine, name) for name in ("prefill", "decode"))
    table = run.judged.measured.table
    by_node = {
        name: mean([seconds for (node, _, _), seconds in table.items() if node == name])
        for name in ("reference", "rewards", "advantages", "batches", "finish")
    }
    gradient_s, update_s = (sum(float(row[name]) for row in run.rows) for name in ("gradient_s", "update_s"))
    steps = len(run.rows)
    groups = [group for _, group in sorted(episodes.groups.items())]
    return Times(
        prefill_s=prefill.busy_s / prefill.steps,
        decode_s=decode.busy_s / decode.steps,
        engine_host_s=decode.between_s / max(1, decode.steps - decode.slices),
        score_s=by_node["reference"],
        gradient_s=gradient_s / run.num_groups,
        update_s=update_s / steps,
        finish_host_s=max(0.0, by_node["finish"] - (gradient_s + update_s) / steps),
        credit_s=by_node["rewards"] + by_node["advantages"] + by_node["batches"],
        episodes=tuple(tuple(script_of(episode) for episode in group.episodes) for group in groups),
    )


@dataclass
class _Steps:
    """Steps of one kind.

    Attributes:
        slices: of the trace, each of which may be several steps.
        steps: of them all.
        busy_s: that they took.
        between_s: between those of one slice.
    """

    slices: int = 0
    steps: int = 0
    busy_s: float = 0.0
    between_s: float = 0.0


def _steps_of(trace: Trace, kind: str) -> _Steps:
    found = _Steps()
    for each in trace.slices:
        if each.name == kind and trace.tracks[each.track].name == "engine":
            busy_s = int(each.args["busy_us"]) / 1e6
            found.slices += 1
            found.steps += int(each.args["steps"])
            found.busy_s += busy_s
            found.between_s += max(0.0, (each.end_ns - each.start_ns) / 1e9 - busy_s)
    return found


def script_of(episode: Episode) -> Script:
    """What an episode asked of whom."""
    turns: list[Turn] = []
    at = 0
    for turn in episode.turns:
        engine_s = (turn.queue_s or 0.0) + (turn.prefill_s or 0.0) + (turn.decode_s or 0.0)
        host_s = max(0.0, (turn.model_s or 0.0) - engine_s)
        turns.append(Turn(turn.start - at, turn.stop - turn.start, host_s, turn.tool_s or 0.0))
        at = turn.stop
    told = sum((turn.model_s or 0.0) + (turn.tool_s or 0.0) for turn in episode.turns)
    return Script(tuple(turns), max(0.0, float(np.round(episode.seconds - told, 6))))

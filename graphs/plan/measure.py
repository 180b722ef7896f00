"""Measures what a plan needs: a short real run of the graph, with a trace, and the engine and the trainer alone."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import jax
from flax import nnx

from flow import Run
from flow.trace import LoopLag, PerfettoWriter, Trace, read_trace, recording
from graphs.bench.experiment import Tell
from graphs.parts import Parts
from graphs.plan.alone import TrainerAlone, engine_alone, trainer_alone
from graphs.plan.permits import Holds, noting
from graphs.plan.played import without_evaluation
from graphs.plan.processors import Moment, processors_left
from graphs.plan.steps import Window, engine_steps, node_seconds, quick, seconds_of, step_seconds
from graphs.plan.times import EngineTimes, Times, TrainerTimes
from graphs.rl import rl
from graphs.rl_config import RlConfig
from stages.batches.plan import Shape
from stages.envs.pool import EnvPool
from stages.models.mesh import mesh_of
from stages.records import Batch, Group

SCORING = ("rewards", "reference", "teacher", "values")
"""Nodes between barrier and advantages, in their order."""


@dataclass
class Seen:
    """A watcher that keeps what left the stages that score and pack groups.

    Attributes:
        last: node whose groups are complete.
        groups: scored, by birth number.
        batches: packed, by birth number.
        moments: of the first item, and of the end of each step of the trainer.
    """

    last: str
    groups: dict[int, Group] = field(default_factory=dict[int, Group])
    batches: dict[int, Batch] = field(default_factory=dict[int, Batch])
    moments: list[Moment] = field(default_factory=list[Moment])

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Keep them."""
        if not self.moments:
            self.moments.append(Moment.now())
        if node == self.last:
            self.groups |= {group.birth: group for group in values}
        elif node == "batches":
            self.batches |= {batch.birth: batch for batch in values}

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Note when."""
        if node == "trainer":
            self.moments.append(Moment.now())


@dataclass(frozen=True)
class Probe:
    """A real run, short.

    Attributes:
        groups: in the order of their birth.
        batches: in the order of their birth.
        moments: of the first item, and of the end of each step.
        trained: groups of a step.
        holds: what tools held of the pools of the graph.
        late_s: mean seconds by which the event loop was late with a timer.
    """

    groups: Sequence[Group]
    batches: Sequence[Batch]
    moments: Sequence[Moment]
    trained: int
    holds: Holds
    late_s: float

    @property
    def window(self) -> Window:
        """From the first item to the end of the last step."""
        first, last = self.moments[0], self.moments[-1]
        return Window(first.at_ns, last.at_ns, last.processor_s - first.processor_s)

    @property
    def turn_s(self) -> float:
        """Seconds that the loop's thread worked for a turn."""
        turns = sum(len(episode.turns) for group in self.groups for episode in group.episodes)
        return (self.moments[-1].loop_s - self.moments[0].loop_s) / turns

    @property
    def groups_per_minute(self) -> float:
        """Over all of it."""
        return 60.0 * self.trained * (len(self.moments) - 1) / self.window.seconds


async def probe(config: RlConfig, parts: Parts, recorder: PerfettoWriter | None = None) -> Probe:
    """Run training for real. The engine is open."""
    holds, make = Holds(), parts.make_env
    if not isinstance(make, EnvPool):
        parts = replace(parts, make_env=noting(make, holds))
    graph = rl(without_evaluation(config), parts)
    last = [name for name in SCORING if name in graph.spec().nodes][-1]
    seen = Seen(last)
    late_s: list[float] = []
    run = Run(graph.build(quiet=True), recorder=recorder, watchers=(seen,))
    lateness = asyncio.create_task(LoopLag().measure(late_s.append))
    try:
        await run.finish()
    finally:
        lateness.cancel()
    by_birth = ([found[birth] for birth in sorted(found)] for found in (seen.groups, seen.batches))
    return Probe(*by_birth, seen.moments, config.groups_per_step, holds, fmean(late_s or [0.0]))


async def measure(
    config: RlConfig, parts: Parts, path: Path, rows: Sequence[int] = (), tell: Tell = lambda done, total, what: None
) -> tuple[Probe, Times]:
    """Run training for real for as many steps as the settings say, then its parts alone.

    Args:
        config: of the training, with few steps.
        parts: of its program, their engine closed and their parameters there. The model is left as it was.
        path: of the trace.
        rows: of the micro-batches that are wanted beside those of the settings.
        tell: hears how far it is.
    """
    sizes = sorted({config.trainer.rows_per_microbatch, *rows})
    total = 3 + len(sizes)
    kept = jax.tree.map(lambda leaf: leaf.copy(), nnx.state(parts.model, nnx.Param))
    trained: dict[int, TrainerAlone] = {}
    with PerfettoWriter(path) as recorder, recording(recorder):
        async with parts.engine:
            tell(0, total, "a step that does not count, in which whatever is slow the first time is done")
            await probe(config.model_copy(update={"steps": 1}), parts)
            nnx.update(parts.model, kept)
            tell(1, total, f"{config.steps} steps are trained")
            found = await probe(config, parts, recorder)
            nnx.update(parts.model, kept)
            tell(2, total, "the engine alone")
            alone, full = await engine_alone(parts)
        for number, size in enumerate(sizes):
            tell(3 + number, total, f"a trainer alone, {size} rows in a micro-batch")
            trained[size] = await trainer_alone(config, parts, found.batches, size)
    trace = read_trace(path)
    return found, Times(
        groups=found.groups,
        engine=_engine_times(trace, alone, full, found),
        trainer={size: _trainer_times(trace, trained[size], config) for size in sizes},
        turn_s=found.turn_s,
        late_s=found.late_s,
        nodes_s=node_seconds(trace, found.window, SCORING),
        holds=found.holds,
        processors=processors_left(found.moments[0], found.moments[-1]),
        shared=jax.default_backend() == "cpu",
        apart=_apart(parts),
    )


def _engine_times(trace: Trace, alone: Window, full: Window, found: Probe) -> EngineTimes:
    seconds, last = step_seconds(engine_steps(trace, alone)), engine_steps(trace, full)
    swaps = seconds_of(trace, found.window, "engine", "weights").get("", [])
    alone_s = sum(each.count * seconds[each.kind, each.rows] for each in last)
    return EngineTimes(
        decode_s={rows: took for (kind, rows), took in seconds.items() if kind == "decode"},
        prefill_s={rows: took for (kind, rows), took in seconds.items() if kind == "prefill"},
        swap_s=median(swaps) if swaps else 0.0,
        demand=_demand(full.processor_s, alone_s),
    )


def _trainer_times(trace: Trace, alone: TrainerAlone, config: RlConfig) -> TrainerTimes:
    steps = alone.steps
    whole = Window(steps[0].began_ns, steps[-1].ended_ns, 0.0)
    gradients = {
        _shape(name): quick(seconds) for name, seconds in seconds_of(trace, whole, "trainer", "gradient", "shape").items()
    }
    alone_s, rests, updates = 0.0, list[float](), list[float]()
    for step in steps:
        took = seconds_of(trace, step, "trainer", "gradient", "shape")
        updated = sum(seconds_of(trace, step, "trainer", "update").get("", ()))
        updates.append(updated)
        rests.append(step.seconds - updated - sum(map(sum, took.values())))
        alone_s += sum(gradients[_shape(name)] * len(seconds) for name, seconds in took.items())
    rest_s, update_s = quick(rests), quick(updates)
    # What is not a gradient is the work of one thread.
    processor_s = sum(step.processor_s for step in steps) - len(steps) * (rest_s + update_s)
    return TrainerTimes(
        gradient_s=gradients,
        group_s=rest_s / config.groups_per_step,
        finish_s=update_s,
        demand=_demand(processor_s, alone_s),
        gradient_bytes=alone.gradient_bytes,
    )


def _demand(processor_s: float, alone_s: float) -> float:
    """Processors that work keeps busy where nobody else wants them; elsewhere than on processors it has the whole device."""
    return max(1.0, processor_s / alone_s) if jax.default_backend() == "cpu" and alone_s else 1.0


def _shape(name: str) -> Shape:
    rows, length = name.split("x")
    return int(rows), int(length)


def _apart(parts: Parts) -> bool:
    mesh = parts.engine.mesh
    own = mesh_of(nnx.state(parts.model, nnx.Param))
    return mesh is not None and not set(mesh.devices.flat) & set(own.devices.flat)

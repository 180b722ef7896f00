"""The engine's graph of a line: stages sleep for the drawn times and fail where the draw says so."""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

from flow import Collect, Context, Drop, Freshness, Graph, Items, Retry, Shrink
from graphs.bench.model.spec import Line, Times, Work

MISSING: dict[str, Any] = {"drop": "drop", "shrink": Shrink(2), "retry": Retry(1, then="drop")}
PATIENT = Drop(most=10**6, of=10**6)
"""The budgets are not what is measured."""


class DrawnFailure(Exception):
    """An attempt that was drawn to fail."""


@dataclass(frozen=True)
class Sleeper:
    """A stage: sleeps, then fails or hands on what it got."""

    name: str
    times: Times

    async def __call__(self, value: Any, context: Context) -> Any:
        """Take as long as was drawn."""
        seconds = self.times.seconds(self.name, context.path, context.retry)
        if seconds:
            await asyncio.sleep(seconds)
        if self.times.fails(self.name, context.path, context.retry):
            raise DrawnFailure(self.name)
        return value


@dataclass
class Trainer:
    """The collecting sink: sleeps for every item and at the end of a step.

    Attributes:
        times: drawn.
        trained: paths in the order of training.
        lags: versions between dispatch and training, where there is feedback.
        took: birth of each item, loop time at which the sink was free for it, and at which it was taken.
        done: loop time at which each step was finished.
    """

    times: Times
    trained: list[tuple[int, ...]] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    took: list[tuple[int, float, float]] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    free: float = 0.0

    async def add(self, value: Any, context: Context) -> None:
        """Take one item of a step."""
        now = asyncio.get_running_loop().time
        self.took.append((context.birth, self.free, now()))
        self.trained.append(context.path)
        if context.lag is not None:
            self.lags.append(context.lag)
        await self._sleep("add", context.path)
        self.free = now()

    async def finish(self, context: Context) -> int:
        """End a step; gives its number, from 1."""
        await self._sleep("finish", (len(self.done),))
        self.free = asyncio.get_running_loop().time()
        self.done.append(self.free)
        return len(self.done)

    async def _sleep(self, name: str, path: tuple[int, ...]) -> None:
        seconds = self.times.seconds(name, path)
        if seconds:
            await asyncio.sleep(seconds)


def graph_of(line: Line, times: Times) -> tuple[Graph, Trainer]:
    """The graph, and the sink to read when it has run."""
    graph, trainer = Graph("line", pools=dict(line.pools)), Trainer(times)

    async def load(value: int, version: int) -> None:
        if version and (seconds := times.seconds("load", (version,))):
            await asyncio.sleep(seconds)

    weights = graph.latest("weights", int, load=load) if line.max_lag is not None else None
    node: Any = graph.source("numbers", itertools.count())
    for kind, work in line.nodes():
        before, node = node, _declare(graph, line, kind, work, node, weights, trainer)
        graph.edge(before, node, capacity=Items(work.capacity))
    if weights is not None:
        freshness = Freshness(max_lag=line.max_lag or 0, late=line.late, depth=line.depth)
        graph.feedback(node, weights, initial=0, freshness=freshness)
    return graph, trainer


def _declare(graph: Graph, line: Line, kind: str, work: Work, before: Any, weights: Any, trainer: Trainer) -> Any:
    if kind == "repeat":
        return graph.repeat("repeat", before, n=line.size)
    if kind == "barrier":
        return graph.group("barrier", before, missing=MISSING[line.missing], budget=None)
    if kind == "sink":
        return graph.sink("sink", trainer, collect=Collect(line.batch, line.steps))
    sleeper = Sleeper(work.name, trainer.times)
    settings: dict[str, Any] = {"workers": work.workers, "needs": work.needs, "on_error": PATIENT, "budget": None}
    return graph.stage(work.name, sleeper, reads=weights if work.reads else None, **settings)

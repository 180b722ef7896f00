"""Graphs whose bottleneck is known, because an experiment says so: the same run again with one lever widened at a time.

A line as training has it: a source, groups of members that read the newest weights, scores, credit, batches, a sink that
collects steps, a cell whose loads take time. Times are drawn per item from seeds, so that a run again with one lever widened
draws the same. The truth about a run is the lever that brings the most throughput when it is widened once: a node, a load or
compiling in half the time, a pool of twice the units, or one step more under way. Who says another one is right too where that
one brings at least nine tenths as much.
"""

import asyncio
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flow import Collect, Context, Freshness, Graph, Items, Threads
from flow.explain import Lever
from flow.testing import simulate
from flow.trace import PerfettoWriter, Trace, read_trace

STEPS, GROUPS, MEMBERS = 16, 4, 4
STEP_S = 10.0
"""Seconds of a step that the slowest part of a graph would take alone."""
WORKERS = {"source": 1, "play": 12, "score": 4, "credit": 1, "pack": 3, "trainer": 1}
A_STEP = {"source": GROUPS, "play": GROUPS * MEMBERS, "score": GROUPS, "credit": GROUPS, "pack": GROUPS, "trainer": GROUPS}
"""Things that each node does in a step; the sink also ends it."""
KINDS = (
    "source",
    "play",
    "score",
    "credit",
    "pack",
    "trainer",
    "load",
    "compile",
    "pool engine",
    "pool judge",
    "pool tools",
    "tickets",
)
AS_GOOD = 0.9
_USES = {
    "pool engine": {"play": 0.6, "score": 0.4},
    "pool judge": {"score": 0.55, "pack": 0.45},
    "pool tools": {"play": 0.55, "score": 0.45},
}


@dataclass(frozen=True)
class World:
    """A run that can be made again.

    Attributes:
        seed: of all times.
        means: mean seconds of one thing, by node, and of a load.
        tail: shape of the times of members: the smaller, the heavier.
        compiles: seconds that the sink compiles for, by number of its calls.
        pools: units.
        needs: pool of each node that takes units of one.
        inside: whether these are taken in the middle of the work, after a fifth of the time, and not at its beginning.
        max_lag: steps that weights may be behind.
        wide: factor of the speed of a node, of ``load`` and of ``compile``.
    """

    seed: int
    means: dict[str, float]
    tail: float = 1.8
    compiles: dict[int, float] = field(default_factory=dict[int, float])
    pools: dict[str, int] = field(default_factory=dict[str, int])
    needs: dict[str, str] = field(default_factory=dict[str, str])
    inside: bool = False
    max_lag: int = 1
    wide: dict[str, float] = field(default_factory=dict[str, float])

    def seconds(self, node: str, key: object) -> float:
        """Time of one thing: Pareto for members, cut at 15 times its mean; close to the mean for others."""
        chance = random.Random(f"{self.seed} {node} {key}").random()
        mean = self.means[node] / self.wide.get(node, 1.0)
        if node != "play":
            return mean * (0.6 + 0.8 * chance)
        return mean * min(15.0, (1.0 - chance) ** (-1.0 / self.tail) * (self.tail - 1.0) / self.tail)


def drawn(kind: str, seed: int) -> World:
    """A world in which this is meant to be the bottleneck: it is 2.5 to 10 times as loaded as anything else."""
    chance = random.Random(f"{kind} {seed}")
    loads = {node: chance.uniform(0.1, 0.4) for node in WORKERS}
    world = World(seed, {}, tail=chance.uniform(1.5, 3.0), max_lag=chance.choice((1, 1, 2)))
    load_s = chance.uniform(0.02, 0.2) * STEP_S
    if kind in WORKERS:
        loads[kind] = 1.0
    if kind == "load":
        load_s = chance.uniform(1.0, 1.6) * STEP_S
    if kind == "compile":
        calls = chance.sample(range(STEPS * GROUPS), 4)
        world = replace(world, compiles={call: chance.uniform(2.0, 5.0) * STEP_S for call in calls})
    if kind == "tickets":
        world = replace(world, max_lag=0, tail=chance.uniform(1.2, 1.6))
        loads = {node: chance.uniform(0.1, 0.3) for node in WORKERS} | {"play": chance.uniform(0.3, 0.6), "trainer": 0.5}
    # A pool limits more than any one node where several take its units: these are the shares of its units that each uses.
    if (use := _USES.get(kind)) is not None:
        pool, units = kind.partition(" ")[2], chance.choice((2, 3))
        world = replace(world, pools={pool: units}, needs=dict.fromkeys(use, pool), inside=kind == "pool tools")
        loads |= {node: share * units / WORKERS[node] for node, share in use.items()}
    means = {node: loads[node] * STEP_S * WORKERS[node] / A_STEP[node] for node in WORKERS}
    means |= {"trainer": means["trainer"] * 0.6, "finish": loads["trainer"] * STEP_S * 0.4, "load": load_s}
    return replace(world, means=means)


def levers(world: World) -> dict[str, World]:
    """The same world with one lever widened, by the lever's name."""
    found = {
        node: replace(world, wide=dict.fromkeys([node, *(["finish"] if node == "trainer" else [])], 2.0)) for node in WORKERS
    }
    found |= {pool: replace(world, pools={**world.pools, pool: 2 * units}) for pool, units in world.pools.items()}
    found |= {"load": replace(world, wide={"load": 2.0}), "tickets": replace(world, max_lag=world.max_lag + 1)}
    return found | ({"compile": replace(world, wide={"compile": 2.0})} if world.compiles else {})


def rate(world: World, recorder: PerfettoWriter | None = None) -> float:
    """Steps a second."""
    graph, sink = graph_of(world)
    simulate(graph, world.seed, recorder=recorder)
    return STEPS / sink.done_at


def traced(world: World, path: Path) -> tuple[Trace, float]:
    """The trace of a run, and its steps a second."""
    with PerfettoWriter(path, clock=lambda: 0) as writer:
        per_second = rate(world, writer)
    return read_trace(path), per_second


def gains(world: World, base: float) -> dict[str, float]:
    """Throughput gained by each lever: the experiment."""
    return {name: rate(wider) / base - 1 for name, wider in levers(world).items()}


def said(bound: Lever | None) -> str:
    """The lever that a verdict names, by the name it has here."""
    return "nothing" if bound is None else bound.kind if bound.kind in ("load", "tickets", "compile") else bound.name


def is_right(name: str, gained: dict[str, float]) -> bool:
    """Whether what was said brings as much as anything, or nearly."""
    return gained.get(name, 0.0) >= AS_GOOD * max(gained.values())


class Drawing:
    """A source that takes time, on a thread."""

    def __init__(self, world: World) -> None:
        self._world, self._count = world, 0

    def draw(self) -> int:
        """The next number."""
        self._count += 1
        loop: Any = asyncio.get_running_loop()
        loop.block(self._world.seconds("source", self._count))
        return self._count

    def __iter__(self) -> Any:
        while True:
            yield self.draw()


class Sink:
    """Collects steps; compiles now and then."""

    def __init__(self, world: World) -> None:
        self._world, self._calls, self._steps = world, 0, 0
        self.done_at = 0.0

    async def add(self, value: object, context: Context) -> None:
        """One thing of a step."""
        self._calls += 1
        if (seconds := self._world.compiles.get(self._calls - 1)) is not None:
            with context.span("compile"):
                await asyncio.sleep(seconds / self._world.wide.get("compile", 1.0))
        await asyncio.sleep(self._world.seconds("trainer", self._calls))

    async def finish(self, context: Context) -> int:
        """The step."""
        self._steps += 1
        await asyncio.sleep(self._world.seconds("finish", self._steps))
        self.done_at = asyncio.get_running_loop().time()
        return self._steps


def graph_of(world: World) -> tuple[Graph, Sink]:
    """Declare the line."""
    graph, sink = Graph("line", pools=world.pools), Sink(world)

    async def load(value: int, version: int) -> None:
        if version:
            await asyncio.sleep(world.seconds("load", version))

    def stage(node: str) -> Any:
        async def work(value: Any, context: Context) -> Any:
            seconds = world.seconds(node, context.path)
            if world.inside and node in world.needs:
                await asyncio.sleep(0.2 * seconds)
                async with context.permit(world.needs[node]):
                    await asyncio.sleep(seconds)
            else:
                await asyncio.sleep(seconds)
            return value

        held = {} if world.inside or node not in world.needs else {world.needs[node]: 1}
        return graph.stage(node, work, workers=WORKERS[node], needs=held, reads=weights if node == "play" else None)

    weights = graph.latest("weights", int, load=load)
    source = graph.source("source", iter(Drawing(world)), placement=Threads())
    repeat = graph.repeat("repeat", source, n=MEMBERS)
    members = stage("play")
    groups = graph.group("groups", members)
    score, credit, pack = stage("score"), stage("credit"), stage("pack")
    end = graph.sink("trainer", sink, collect=Collect(GROUPS, steps=STEPS))
    _ = source >> repeat >> members >> groups >> score >> credit >> pack >> end
    graph.edge(pack, end, capacity=Items(4 * GROUPS))
    graph.feedback(end, weights, initial=0, freshness=Freshness(world.max_lag))
    return graph, sink

"""Whole random graphs as values: what they are made of, how they are drawn, and the real graph each of them declares.

What a stage does with an item is a function of the graph's seed and the item's identity, never of time, so ``_oracle.py`` can
say which items reach the sink, whatever the schedule. A new kind of part is a class here with its ``declare``, a draw in
``_draw_parts``, and a case in the oracle.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Any, Literal, cast

from .._context import Context
from .._graph import Graph, Node
from .._item import Filtered, Gathered, Many
from .._limits import Collect, Freshness, Items
from .._policy import Drop, Emit, Missing, Retry, Shrink
from ._chance import chance, number, pareto
from ._collected import Collected

POOLS = {"a": 1, "b": 2}
_MANY = 10**6
_MISSING: tuple[Missing, ...] = ("drop", Shrink(2), Shrink(1), Retry(1, then="drop"), Retry(2, then="shrink"))


@dataclass(frozen=True)
class Step:
    """A stage of a random graph.

    Attributes:
        name: of its node.
        fail: chance that an attempt raises.
        filter: chance that an attempt that does not raise filters its item.
        spread: whether it gives from none to three outputs, and not always one.
        retries: of its policy.
        then: what follows the last retry.
        workers: attempts at once.
        order: in which outputs leave.
        needs: pool units held while it works.
        room: bound of the edge before it; ``None`` for the default.
    """

    name: str
    fail: float
    filter: float
    spread: bool
    retries: int
    then: Literal["drop", "emit"]
    workers: int
    order: Literal["any", "input"]
    needs: tuple[tuple[str, int], ...]
    room: int | None

    def fate(self, seed: int, path: tuple[int, ...], retry: int) -> Literal["raise", "filter"] | int:
        """Tell what an attempt does: raise, filter, or give this many outputs."""
        name = number(self.name)
        if chance(seed, name, path, retry, 0) < self.fail:
            return "raise"
        if chance(seed, name, path, retry, 1) < self.filter:
            return "filter"
        return int(chance(seed, name, path, retry, 2) * 4) if self.spread else 1

    def declare(self, graph: Graph, before: Node[Any, Any], seed: int, reads: Any = None) -> Node[Any, Any]:
        """Add the stage to a graph, behind a node."""
        final = Drop(_MANY, _MANY) if self.then == "drop" else Emit(lambda value, failure, context: value, _MANY, _MANY)
        node = graph.stage(
            self.name,
            _work(self, seed),
            workers=self.workers,
            order=self.order,
            needs=dict(self.needs),
            reads=reads,
            on_error=Retry(self.retries, then=final, backoff_s=0.5) if self.retries else final,
            budget=None,
        )
        graph.edge(before, node, capacity=None if self.room is None else Items(self.room))
        return node


@dataclass(frozen=True)
class Pair:
    """Groups: a repeat, stages that handle the members, and the barrier.

    Attributes:
        name: of its barrier.
        size: members of a group.
        inside: the stages between.
        missing: policy of the barrier.
    """

    name: str
    size: int
    inside: tuple[Step, ...]
    missing: Missing

    def declare(self, graph: Graph, before: Node[Any, Any], seed: int, reads: Any = None) -> Node[Any, Any]:
        """Add the pair to a graph, behind a node."""
        node = graph.repeat(f"{self.name} members", before, n=self.size)
        graph.edge(before, node)
        for step in self.inside:
            node = step.declare(graph, node, seed, reads)
        barrier = graph.group(self.name, node, missing=self.missing, budget=None)
        graph.edge(node, barrier)
        return barrier


Part = Step | Pair


@dataclass(frozen=True)
class Training:
    """The sink takes steps and feeds their number back. There is one pair then, and it reads the cell.

    Attributes:
        freshness: of the feedback edge.
        items: groups in a step.
        steps: steps until the run is complete.
        load_s: most seconds until a version is in force.
    """

    freshness: Freshness
    items: int
    steps: int
    load_s: float


@dataclass(frozen=True)
class RandomGraph:
    """A random graph.

    Attributes:
        seed: decides what becomes of each item, and how long each attempt takes.
        tasks: items of the source.
        parts: what lies between source and sink.
        collect: items in a step of the sink, the last one short; ``None`` for a plain sink.
        training: feedback from the sink; ``None`` for none.
    """

    seed: int
    tasks: int
    parts: tuple[Part, ...]
    collect: int | None = None
    training: Training | None = None

    def graph(self, sink: Collected[Any]) -> Graph:
        """Declare the real graph, with this sink at its end."""
        graph, training = Graph("random", pools=POOLS), self.training
        cell = None if training is None else graph.latest("steps", int, load=_loader(self.seed, training.load_s))
        node: Node[Any, Any] = graph.source("tasks", range(self.tasks))
        for part in self.parts:
            node = part.declare(graph, node, self.seed, cell if isinstance(part, Pair) else None)
        slow = _SlowSink(sink, self.seed)
        if training is not None and cell is not None:
            end = graph.sink("sink", slow, collect=Collect(training.items, steps=training.steps))
            graph.feedback(end, cell, initial=0, freshness=training.freshness)
        elif self.collect is not None:
            end = graph.sink("sink", slow, collect=Collect(self.collect, end="short"))
        else:
            end = graph.sink("sink", slow)
        graph.edge(node, end)
        return graph


def random_graph(rnd: random.Random, *, tasks: int = 8, training: bool = False) -> RandomGraph:
    """Draw a graph.

    Args:
        rnd: where every choice comes from.
        tasks: items of the source. With training the most that may be needed: 12 steps' worth is plenty.
        training: with feedback, freshness and steps.
    """
    parts = _draw_parts(rnd, training)
    seed = rnd.randint(0, 2**20)
    if not training:
        return RandomGraph(seed, tasks, parts, collect=rnd.choice([None, None, 1, 3]))
    freshness = Freshness(rnd.randint(0, 2), rnd.choice(["wait", "drop"]))
    drawn = Training(freshness, rnd.randint(1, 3), 4, rnd.choice([0.0, 0.0, 5.0]))
    return RandomGraph(seed, tasks, parts, training=drawn)


def _draw_parts(rnd: random.Random, training: bool) -> tuple[Part, ...]:
    pairs = 1 if training else rnd.choice([0, 1, 1, 2])
    parts: list[Part] = _draw_steps(rnd, "before", 0, spread=True)
    for index in range(pairs):
        inside = tuple(_draw_steps(rnd, f"inside{index}-", 1, spread=False, least_room=4))
        missing = rnd.choice(_MISSING)
        parts.append(Pair(f"groups{index}", rnd.randint(2, 4), inside, missing))
        parts += _draw_steps(rnd, f"after{index}-", 0, spread=not training, least_room=9 if training else 1)
    return tuple(parts)


def _draw_steps(rnd: random.Random, prefix: str, least: int, *, spread: bool, least_room: int = 1) -> list[Any]:
    # A repeat puts a whole group on the edge behind it, and whoever may have to wait for the one that must go next needs room
    # for all that hold a ticket: ``least_room`` keeps such graphs feasible.
    return [
        Step(
            f"{prefix}{index}",
            fail=rnd.choice([0, 0.1, 0.3]),
            filter=rnd.choice([0, 0.2]),
            spread=spread and rnd.random() < 0.3,
            retries=rnd.choice([0, 0, 1, 2]),
            then=rnd.choice(["drop", "emit"]),
            workers=rnd.randint(1, 4),
            order=rnd.choice(["any", "input"]),
            needs=rnd.choice([(), (("a", 1),), (("b", 2),), (("a", 1), ("b", 1))]),
            room=rnd.choice([None, least_room, least_room + 2]),
        )
        for index in range(rnd.randint(least, 2))
    ]


def _work(step: Step, seed: int) -> Any:
    name = number(step.name)

    async def work(value: Any, context: Context) -> Any:
        await asyncio.sleep(_seconds(seed, name, context.path, context.retry, context.attempt))
        fate = step.fate(seed, context.path, context.retry)
        if fate == "raise":
            raise ValueError("drawn")
        if fate == "filter":
            return Filtered("drawn")
        kept: Any = cast("Any", value) if isinstance(value, Gathered) else context.path
        return Many([kept] * fate) if step.spread else kept

    return work


def _seconds(seed: int, *key: object) -> float:
    """How long something takes: no time at all, less than a second, or a heavy tail."""
    kind = chance(seed, key, 3)
    share = chance(seed, key, 4)
    return 0.0 if kind < 0.5 else share if kind < 0.75 else min(pareto(share, 1.0), 100.0)


def _loader(seed: int, most_s: float) -> Any:
    async def load(value: int, version: int) -> None:
        await asyncio.sleep(chance(seed, version, 5) * most_s)

    return load if most_s else None


class _SlowSink:
    """Takes its time before it hands a value to the sink inside."""

    def __init__(self, sink: Collected[Any], seed: int) -> None:
        self._sink, self._seed = sink, seed

    async def __call__(self, value: Any, context: Context) -> None:
        await asyncio.sleep(chance(self._seed, context.path, 6) // 0.5 / 2)
        self._sink(value, context)

    async def add(self, value: Any, context: Context) -> None:
        await asyncio.sleep(chance(self._seed, context.path, 6) // 0.5 / 5)
        self._sink.add(value, context)

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(chance(self._seed, context.path, 7) * 3)
        return self._sink.finish(context)

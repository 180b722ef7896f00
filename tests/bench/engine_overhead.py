"""What the engine costs an item and edge: source, map, sink at capacity 16, against ``asyncio.Queue(16)`` in the same run.

No work in the stages, so all of it is the engine. Target: at most 1.0 times the queue without spans, 1.2 with.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from flow import Context, Graph, Items, Run
from flow.trace import PerfettoWriter

ITEMS = 30_000
EDGES = 2
REPEATS = 7


def increment(number: int, context: Context) -> int:
    return number + 1


def forget(number: int, context: Context) -> None: ...


def line() -> Graph:
    """The graph that is measured."""
    graph = Graph("line")
    numbers = graph.source("numbers", range(ITEMS))
    more = graph.stage("more", increment)
    gone = graph.sink("gone", forget)
    numbers >> more >> gone
    graph.edge(numbers, more, capacity=Items(16))
    graph.edge(more, gone, capacity=Items(16))
    return graph


async def queues() -> None:
    """The same with two queues and three tasks."""
    first: asyncio.Queue[int | None] = asyncio.Queue(16)
    second: asyncio.Queue[int | None] = asyncio.Queue(16)

    async def source() -> None:
        for number in range(ITEMS):
            await first.put(number)
        await first.put(None)

    async def stage() -> None:
        while (number := await first.get()) is not None:
            await second.put(number + 1)
        await second.put(None)

    async def sink() -> None:
        while await second.get() is not None:
            pass

    await asyncio.gather(source(), stage(), sink())


async def plain() -> None:
    """The graph without a trace."""
    await Run(line().build()).finish()


async def traced() -> None:
    """The graph with a span for every item at every stage."""
    with tempfile.TemporaryDirectory() as folder, PerfettoWriter(Path(folder) / "run.pftrace") as recorder:
        await Run(line().build(), recorder=recorder).finish()


def nanoseconds(run: Callable[[], object]) -> float:
    """Time per item and edge."""
    began = time.perf_counter()
    asyncio.run(run())  # type: ignore[arg-type]
    return (time.perf_counter() - began) / ITEMS / EDGES * 1e9


if __name__ == "__main__":
    rounds = [{run.__name__: nanoseconds(run) for run in (queues, plain, traced)} for _ in range(REPEATS)]
    ratios = {name: statistics.median(r[name] / r["queues"] for r in rounds) for name in ("plain", "traced")}
    detail = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    costs = ", ".join(f"{name} {cost:.0f} ns" for name, cost in detail.items())
    print(f"an item and edge: {costs}")
    targets = {"plain": 1.0, "traced": 1.2}
    print(json.dumps({"bench": "engine_overhead", "ratios": ratios, "targets": targets, "detail": {"ns": detail}}))

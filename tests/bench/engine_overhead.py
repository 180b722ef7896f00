"""What the engine costs an item and edge: source, map, sink at capacity 16, against ``asyncio.Queue(16)`` in the same run.

No work in the stages, so all of it is the engine. Target: at most 1.0 times the queue without spans, 1.2 with, on asyncio's own
loop and on uvloop, where it is installed. What it costs to write the file as well, on a thread of its own, is told apart. Where
every item suspends, at capacity 1 and with a stage that gives way once, each hand-over parks whoever takes and whoever gives;
target: 10 microseconds an item and edge. Seconds of processor time, since the machine may be shared.
"""

import asyncio
import importlib
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flow import Context, Graph, Items, Run
from flow.trace import PerfettoWriter

ITEMS = 30_000
EDGES = 2
REPEATS = 7


def increment(number: int, context: Context) -> int:
    return number + 1


async def give_way(number: int, context: Context) -> int:
    await asyncio.sleep(0)
    return number + 1


def forget(number: int, context: Context) -> None: ...


def line(work: Any = increment, capacity: int = 16) -> Graph:
    """The graph that is measured."""
    graph = Graph("line")
    numbers = graph.source("numbers", range(ITEMS))
    more = graph.stage("more", work)
    gone = graph.sink("gone", forget)
    numbers >> more >> gone
    graph.edge(numbers, more, capacity=Items(capacity))
    graph.edge(more, gone, capacity=Items(capacity))
    return graph


async def queues(capacity: int = 16, gives_way: bool = False) -> None:
    """The same with two queues and three tasks."""
    first: asyncio.Queue[int | None] = asyncio.Queue(capacity)
    second: asyncio.Queue[int | None] = asyncio.Queue(capacity)

    async def source() -> None:
        for number in range(ITEMS):
            await first.put(number)
        await first.put(None)

    async def stage() -> None:
        while (number := await first.get()) is not None:
            if gives_way:
                await asyncio.sleep(0)
            await second.put(number + 1)
        await second.put(None)

    async def sink() -> None:
        while await second.get() is not None:
            pass

    await asyncio.gather(source(), stage(), sink())


async def plain() -> None:
    """The graph without a trace."""
    await Run(line().build()).finish()


async def suspending() -> None:
    """The graph in which every hand-over parks."""
    await Run(line(give_way, 1).build()).finish()


async def suspending_queues() -> None:
    """The queues in which every hand-over parks."""
    await queues(1, gives_way=True)


CASES = (queues, plain, suspending_queues, suspending)


def nanoseconds(run: Callable[[], Any], loop: Any = None) -> float:
    """Time per item and edge."""
    with asyncio.Runner(loop_factory=loop) as runner:
        began = time.process_time()
        runner.run(run())
        return (time.process_time() - began) / ITEMS / EDGES * 1e9


def traced(loop: Any) -> tuple[float, float]:
    """Time per item and edge of the graph with spans at every stage: of the run, and with the rest of its file written too.

    The recorder is that of real runs. Its thread writes twice a second, so a run this short ends before the file is encoded.
    """
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=loop) as runner:
        began = time.process_time()
        with PerfettoWriter(Path(folder) / "run.pftrace") as recorder:
            runner.run(Run(line().build(), recorder=recorder).finish())
            ran = time.process_time()
        closed = time.process_time()
    return (ran - began) / ITEMS / EDGES * 1e9, (closed - began) / ITEMS / EDGES * 1e9


def measure(loop: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Ratios of one kind of loop, and the nanoseconds behind them. In turns, so that noise meets all."""
    rounds: list[dict[str, float]] = []
    for _ in range(REPEATS):
        costs = {run.__name__: nanoseconds(run, loop) for run in CASES}
        costs["traced"], costs["written"] = traced(loop)
        rounds.append(costs)
    ratios = {name: statistics.median(r[name] / r["queues"] for r in rounds) for name in ("plain", "traced", "written")}
    cost = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    return {**ratios, "suspending_us": cost["suspending"] / 1e3}, cost


def main() -> dict[str, object]:
    """Measure on each loop there is."""
    loops: dict[str, Any] = {"": None}
    if importlib.util.find_spec("uvloop"):
        loops["uvloop_"] = importlib.import_module("uvloop").new_event_loop
    else:
        print("uvloop is not installed: measured on asyncio's own loop only")
    ratios: dict[str, float] = {}
    detail: dict[str, dict[str, float]] = {}
    for prefix, loop in loops.items():
        found, detail[f"{prefix}ns"] = measure(loop)
        ratios |= {prefix + name: value for name, value in found.items()}
        costs = ", ".join(f"{name} {cost:.0f} ns" for name, cost in detail[f"{prefix}ns"].items())
        print(f"{prefix.rstrip('_') or 'asyncio'}, an item and edge: {costs}")
    targets = {
        prefix + name: most for prefix in loops for name, most in (("plain", 1.0), ("traced", 1.2), ("suspending_us", 10.0))
    }
    return {"bench": "engine_overhead", "ratios": ratios, "targets": targets, "detail": detail}


if __name__ == "__main__":
    print(json.dumps(main()))

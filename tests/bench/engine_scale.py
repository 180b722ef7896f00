"""Whether the cost of the engine stays flat: with many workers, with many items, with many stages; and whether memory does.

Workers: 10 to 10,000 of one stage wait on timers, against bare tasks that share an iterator and sleep as long. What is compared
is time of the processor, with timers so long that the loop is a quarter busy, and so short that it never rests. Target: at most
1.5 times the bare tasks at each size. Tasks that hand over by queues, as the engine does by edges, are told for comparison.

Items and stages: a source, stages without work, a sink. Plans are built beforehand, and a run of one item is taken off each, so
that opening, starting and ending cancel out and what is left is the cost of an item and edge. Target: the dearest within 1.3
times the cheapest. Memory: the peak of the process after a million items against after ten thousand, target 1.1.
"""

import asyncio
import gc
import json
import resource
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from flow import Context, Graph, Run

WORKERS = {"waiting": (10, 100, 1_000, 10_000), "saturated": (1_000, 10_000)}
"""With few workers the loop rests whatever the timer, since none is under 5 ms."""
SECONDS_A_WORKER = {"waiting": 100e-6, "saturated": 5e-6}
"""Mean timer for each worker there is: with so many workers, one ends about this often."""
ITEMS = {1_000: 15, 10_000: 5, 100_000: 2, 1_000_000: 1}
"""And how often each size is run; the quickest counts."""
STAGES = (3, 10, 50)
ITEMS_PER_LINE = 10_000


def increment(number: int, context: Context) -> int:
    return number + 1


def forget(number: int, context: Context) -> None: ...


def line(items: int, stages: int) -> Graph:
    """A source, so many stages, a sink."""
    graph = Graph("line")
    node: Any = graph.source("numbers", range(items))
    for number in range(stages):
        node = node >> graph.stage(f"stage{number}", increment)
    node >> graph.sink("gone", forget)
    return graph


def timer(number: int, workers: int, each_s: float) -> float:
    """Seconds an item sleeps: 0.5 to 1.5 times the mean, and never under 5 ms, which would measure the clock."""
    return max(0.005, workers * each_s) * (0.5 + number % 101 / 100)


async def engine(items: int, workers: int, each_s: float) -> None:
    """One stage of so many workers."""

    async def sleep(number: int, context: Context) -> int:
        await asyncio.sleep(timer(number, workers, each_s))
        return number

    graph = Graph("sleepers")
    graph.source("numbers", range(items)) >> graph.stage("asleep", sleep, workers=workers) >> graph.sink("gone", forget)
    await Run(graph.build()).finish()


async def bare(items: int, workers: int, each_s: float) -> None:
    """The least that could do the same."""

    async def worker(numbers: Iterator[int]) -> None:
        for number in numbers:
            await asyncio.sleep(timer(number, workers, each_s))

    numbers = iter(range(items))
    await asyncio.gather(*(worker(numbers) for _ in range(workers)))


async def queues(items: int, workers: int, each_s: float) -> None:
    """The same with a queue before the tasks and one behind them."""
    before: asyncio.Queue[int | None] = asyncio.Queue(2 * workers)
    behind: asyncio.Queue[int] = asyncio.Queue(2)

    async def source() -> None:
        for number in range(items):
            await before.put(number)
        for _ in range(workers):
            await before.put(None)

    async def worker() -> None:
        while (number := await before.get()) is not None:
            await asyncio.sleep(timer(number, workers, each_s))
            await behind.put(number)

    async def sink() -> None:
        for _ in range(items):
            await behind.get()

    await asyncio.gather(source(), sink(), *(worker() for _ in range(workers)))


def processor_seconds(main: Callable[[], Coroutine[Any, Any, Any]]) -> float:
    """Time of the processor, without the garbage of what ran before."""
    gc.collect()
    began = time.process_time()
    asyncio.run(main())
    return time.process_time() - began


def with_workers(workers: int, each_s: float) -> dict[str, float]:
    """Microseconds an item with so many workers, starting them included."""
    items, sides = max(min(3_000, 100 * workers), 3 * workers), (engine, bare, queues)
    rounds = [[processor_seconds(lambda run=run: run(items, workers, each_s)) for run in sides] for _ in range(3)]
    cost = {f"{run.__name__}_us": min(took) / items * 1e6 for run, took in zip(sides, zip(*rounds, strict=True), strict=True)}
    to_bare, to_queues = (statistics.median(row[0] / row[other] for row in rounds) for other in (1, 2))
    return {**cost, "ratio": to_bare, "ratio_to_queues": to_queues}


def nanoseconds(items: int, stages: int, repeats: int) -> float:
    """Cost of an item and edge."""
    one, many = line(1, stages).build(), line(items, stages).build()
    overhead = min(processor_seconds(lambda: Run(one).finish()) for _ in range(5))
    took = min(processor_seconds(lambda: Run(many).finish()) for _ in range(repeats))
    return (took - overhead) / (items - 1) / (stages + 1) * 1e9


def main() -> dict[str, object]:
    """Memory first, since its peak never falls."""
    cost_of_items: dict[int, float] = {}
    peak_mb: dict[int, float] = {}
    for items, repeats in ITEMS.items():
        cost_of_items[items] = nanoseconds(items, STAGES[0], repeats)
        peak_mb[items] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{items} items: {cost_of_items[items]:.0f} ns an item and edge, peak {peak_mb[items]:.1f} MB")
    cost_of_stages = {stages: nanoseconds(ITEMS_PER_LINE, stages, 3) for stages in STAGES}
    print("; ".join(f"{stages} stages: {cost:.0f} ns an item and edge" for stages, cost in cost_of_stages.items()))
    workers = {
        f"{count} {kind}": with_workers(count, each) for kind, each in SECONDS_A_WORKER.items() for count in WORKERS[kind]
    }
    for name, row in workers.items():
        print(f"{name} workers: " + ", ".join(f"{key} {value:.2f}" for key, value in row.items()))
    flat = {
        name: max(costs.values()) / min(costs.values())
        for name, costs in (("items", cost_of_items), ("stages", cost_of_stages))
    }
    ratios = {
        **{f"workers_{name.replace(' ', '_')}": row["ratio"] for name, row in workers.items()},
        **flat,
        "memory": peak_mb[1_000_000] / peak_mb[10_000],
    }
    targets = {name: 1.5 if name.startswith("workers") else 1.3 for name in ratios} | {"memory": 1.1}
    detail = {"ns_by_items": cost_of_items, "ns_by_stages": cost_of_stages, "peak_mb": peak_mb, "workers": workers}
    return {"bench": "engine_scale", "ratios": ratios, "targets": targets, "detail": detail}


if __name__ == "__main__":
    print(json.dumps(main()))

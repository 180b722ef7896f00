"""Throughput of the engine against the event model: the same lines, the same drawn times, the same failures.

In virtual time, where the engine's own cost is nothing and only its choices count, and in real time with sleeping stages. A
ratio is the model's time over the engine's up to the last step, so above 1 the model is too slow. What a run needs to end after
its last step is told apart, as a share of that. In real time the model oversleeps as much as a bare ``asyncio.sleep`` does on
this machine. The worst line is held to the targets, by its median over seeds: 0.97 in virtual time, 0.93 in real time.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Sequence

from lines.engine import graph_of
from lines.shapes import KINDS, shapes, times

from flow import Run, Summary
from flow.testing import run_virtual
from graphs.bench.model.event_model import Model
from graphs.bench.model.spec import Drawn, Line

STEPS, SEEDS = 150, 5
REAL_STEPS, REAL_SECONDS = 30, 2.5
BUSY = 0.02
"""Shares of time below this are not worth a word."""


async def run_once(line: Line, drawn: Drawn) -> tuple[float, float, Summary]:
    """Seconds from the start to the last step, and from there to the end of the run."""
    graph, trainer = graph_of(line, drawn)
    clock = asyncio.get_running_loop().time
    began = clock()
    summary = await Run(graph.build(), stall_s=None).finish()
    return trainer.done[-1] - began, clock() - trainer.done[-1], summary


def virtual(line: Line, drawn: Drawn) -> tuple[float, float, Summary]:
    """The ratio of one run in virtual time, and what came after the last step as a share of the time before."""
    took, after, summary = run_virtual(run_once(line, drawn), seed=drawn.seed)
    return Model(line, drawn).run().seconds / took, after / took, summary


def real(line: Line, kind: str, oversleep_s: float) -> tuple[float, float]:
    """The ratio of one run in real time, and the same if a bare sleep were exact."""
    scale = REAL_SECONDS / Model(line, times(kind, 0)).run().seconds
    exact = times(kind, 0, scale)
    took, _, _ = asyncio.run(run_once(line, exact))
    late = times(kind, 0, scale, oversleep_s)
    return Model(line, late).run().seconds / took, Model(line, exact).run().seconds / took


async def oversleep() -> float:
    """Mean seconds that a bare ``asyncio.sleep`` takes too long, with as many sleepers as the lines have."""

    async def sleeper(seconds: float) -> float:
        began = time.perf_counter()
        for _ in range(20):
            await asyncio.sleep(seconds)
        return (time.perf_counter() - began) / 20 - seconds

    return statistics.mean(await asyncio.gather(*(sleeper(0.005 + 0.0007 * n) for n in range(32))))


def waits(summary: Summary) -> str:
    """Who waited for what."""
    busy = {name: {state: s for state, s in node.shares.items() if s >= BUSY} for name, node in summary.nodes.items()}
    return "; ".join(f"{name} " + ", ".join(f"{state} {s:.0%}" for state, s in shares.items()) for name, shares in busy.items())


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median and most."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def main() -> dict[str, object]:
    """Measure every line with every kind of times."""
    in_virtual: dict[str, dict[str, float]] = {}
    afterwards: dict[str, float] = {}
    for line in shapes(STEPS):
        for kind in KINDS:
            runs = [virtual(line, times(kind, seed)) for seed in range(SEEDS)]
            key = f"{line.name} {kind}"
            in_virtual[key] = spread([ratio for ratio, _, _ in runs])
            afterwards[key] = max(after for _, after, _ in runs)
            print(f"virtual {key}: " + ", ".join(f"{name} {value:.3f}" for name, value in in_virtual[key].items()))
            if in_virtual[key]["median"] < 0.97:
                print(f"  {waits(runs[0][2])}")
    last = max(afterwards, key=afterwards.__getitem__)
    print(f"after the last step at most {afterwards[last]:.0%} of the time before: {last}")
    late = asyncio.run(oversleep())
    in_real: dict[str, dict[str, float]] = {}
    for line in shapes(REAL_STEPS):
        for kind in KINDS:
            ratio, exact = real(line, kind, late)
            in_real[f"{line.name} {kind}"] = {"ratio": ratio, "if_sleeps_were_exact": exact}
            print(f"real {line.name} {kind}: {ratio:.3f}, {exact:.3f} if sleeps were exact")
    medians = [row["median"] for row in in_virtual.values()]
    reals = [row["ratio"] for row in in_real.values()]
    ratios = {
        "virtual_least": min(medians),
        "virtual_median": statistics.median(medians),
        "virtual_most": max(medians),
        "real_least": min(reals),
        "real_median": statistics.median(reals),
    }
    return {
        "bench": "engine_efficiency",
        "ratios": ratios,
        "targets": {
            "virtual_least": 0.97,
            "virtual_median": 0.97,
            "virtual_most": 1.03,
            "real_least": 0.93,
            "real_median": 0.93,
        },
        "detail": {"virtual": in_virtual, "afterwards": afterwards, "real": in_real, "oversleep_s": late},
    }


if __name__ == "__main__":
    print(json.dumps(main()))

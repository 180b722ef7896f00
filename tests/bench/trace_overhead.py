"""What a trace costs: the calculator run with one and without, what its hooks take of that run, and a million spans.

Two whole runs differ by more than a trace costs, so the figure that counts is counted: how often each hook was called in the
run, times what one takes, on the thread that works and on the one that writes. Targets: under 1 % of the run; under 1 us for a
span; a million spans in under 100 MB, read and judged in under 20 s. ``--pairs N`` (3) and ``--steps N`` (10) of the
calculator.

Times of the parts are those of the processor, of the thread that does it: what others do on the machine is no cost of a trace.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

import flow
from flow._core.item import Item
from flow._core.meter import Meter
from flow._lane import Lane
from flow._spans import listen
from flow.explain import explain
from flow.trace import PerfettoWriter, Trace, read_trace
from graphs.calculator import CalculatorConfig, calculator
from graphs.runs.execute import execute, prepare
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.view import View

HOOKS, REPEATS = 5_000, 21
MILLION, LANES = 1_000_000, 64


def main() -> None:
    """Prints the measurements, as one line of JSON at last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hooks = hook_costs(folder)
        million = million_spans(folder / "million")
        run = calculator_run(folder, options.pairs, options.steps, hooks)
    ratios = {
        "hooks_of_run": run["hooks_share"],
        "span_us": hooks["span_us"],
        "unheard_span_us": hooks["unheard_span_us"],
        "million_mb": million["mb"],
        "million_read_and_judged_s": million["read_s"] + million["judged_s"],
    }
    targets = dict(zip(ratios, (0.01, 1.0, 0.3, 100.0, 20.0), strict=True))
    detail = {"hooks": hooks, "million": million, "calculator": run}
    print(json.dumps({"bench": "trace_overhead", "ratios": ratios, "targets": targets, "detail": detail}))


# --- one hook ---


def hook_costs(folder: Path) -> dict[str, float]:
    """Microseconds of a hook, by kind; and of what the writer's thread does for one event."""
    costs: dict[str, float] = {"unheard_span_us": median_us(spans)}
    with PerfettoWriter(folder / "hooks.pftrace", max_backlog=10**7) as recorder:
        graph = recorder.track("graph g")
        track, counter = recorder.track("other", graph), recorder.counter("depth", "items", graph)
        lane, item, clock = lane_of(recorder, graph, 0), Item(None, (5, 1), 5, 1, seen=3), time.monotonic_ns

        def slices(num: int) -> None:
            for _ in range(num):
                recorder.begin(track, "work", clock())
                recorder.end(track, clock())

        def counts(num: int) -> None:
            for value in range(num):
                recorder.count(counter, value, clock())

        def attempts(num: int) -> None:
            for _ in range(num):
                lane.enter("input", "members->episodes")
                lane.work(item)

        def own_spans(num: int) -> None:
            for _ in range(num):
                with flow.span("model", turn=3):
                    pass

        def written() -> None:
            lane.hand_over()
            recorder.flush()

        async def inside() -> float:
            lane.own()
            listen(lane.inside)
            return median_us(own_spans, written)

        costs["slice_us"] = median_us(slices, recorder.flush)
        costs["count_us"] = median_us(counts, recorder.flush)
        costs["attempt_us"] = median_us(attempts, written)
        costs["span_us"] = asyncio.run(inside())
        written()
        attempts(HOOKS)
        lane.hand_over()
        costs["written_us"] = cpu_us(lambda num: recorder.flush(), 4 * HOOKS)
    return costs


def spans(num: int) -> None:
    """Spans that nobody hears of."""
    for _ in range(num):
        with flow.span("model", turn=3):
            pass


def median_us(work: Callable[[int], None], after: Callable[[], None] = lambda: None) -> float:
    """Microseconds of one of many. ``after``: what is to be done between two measurements."""
    found: list[float] = []
    for _ in range(REPEATS):
        found.append(cpu_us(work, HOOKS))
        after()
    return statistics.median(found)


def cpu_us(work: Callable[[int], None], num: int) -> float:
    """Microseconds of this thread for one of ``num``."""
    began = time.thread_time_ns()
    work(num)
    return (time.thread_time_ns() - began) / num / 1e3


def lane_of(recorder: PerfettoWriter, node: int, index: int) -> Lane:
    """A worker of a node that reads a cell."""
    return Lane("episodes", index, Meter(), time.monotonic, recorder, node, 0, "weights")


# --- a million spans ---


def million_spans(folder: Path) -> dict[str, float]:
    """Attempts and waits of many workers as a run records them: how large they are on disk, and how long they take to read."""
    folder.mkdir()
    with PerfettoWriter(folder / "run.pftrace", max_backlog=10**7) as recorder:
        graph = recorder.track("graph g")
        node = recorder.track("episodes", graph)
        lanes = [lane_of(recorder, node, index) for index in range(LANES)]
        for turn in range(MILLION // (2 * LANES) + 1):
            for index, lane in enumerate(lanes):
                lane.enter("input", "members->episodes")
                lane.work(Item(None, (turn, index), turn, index, seen=turn // 8))
        for lane in lanes:
            lane.close()
    began = time.process_time()
    trace = read_trace(folder)
    read_s = time.process_time() - began
    num = sum(map(len, trace.spans.values()))
    began = time.process_time()
    explain(trace)
    judged_s = time.process_time() - began
    size = sum(file.stat().st_size for file in folder.iterdir())
    scale = MILLION / num
    return {"spans": num, "mb": size / 1e6 * scale, "read_s": read_s * scale, "judged_s": judged_s * scale}


# --- the calculator ---


def calculator_run(folder: Path, pairs: int, steps: int, hooks: dict[str, float]) -> dict[str, Any]:
    """Runs with a trace and without, by turns, and the share that the hooks of the traced one took."""
    traced, bare, shares = [], [], []
    for pair in range(pairs):
        path = folder / f"traced {pair}"
        for recorded in (pair % 2 == 0, pair % 2 == 1):
            seconds = seconds_of(path if recorded else folder / f"bare {pair}", steps, recorded)
            (traced if recorded else bare).append(seconds)
        shares.append(hook_seconds(read_trace(path), hooks) / traced[-1])
        print(f"pair {pair}: {traced[-1]:.2f} s with a trace, {bare[-1]:.2f} s without, hooks {shares[-1]:.3%}", flush=True)
    ratios = [with_it / without for with_it, without in zip(traced, bare, strict=True)]
    return {
        "traced_s": traced,
        "bare_s": bare,
        "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
        "hooks_share": statistics.median(shares),
        "steps": steps,
    }


def seconds_of(folder: Path, steps: int, recorded: bool) -> float:
    """Wall seconds that the graphs of a run are at work: no imports, no compilation of the engine."""
    base = CalculatorConfig()
    changes = {
        "warm_start": base.warm_start.model_copy(update={"steps": 10}),
        "evaluate": base.evaluate.model_copy(update={"num_tasks": 16}),
        "rl": base.rl.model_copy(update={"steps": steps}),
    }
    config = base.model_copy(update=changes)
    run_folder, program = RunFolder(folder), calculator(config)
    plans, view = prepare(program, run_folder), View(Console(quiet=True))
    options = SavingOptions(checkpoint_every=None, trace_bytes=512_000_000 if recorded else None)
    summary = asyncio.run(execute(program, plans, run_folder, view, options=options))
    return sum(phase["seconds"] for phase in summary["phases"])


def hook_seconds(trace: Trace, hooks: dict[str, float]) -> float:
    """What recording took: of each slice its hook and the writing of its two events, of all else as much as of a count."""
    slices = sum(map(len, trace.spans.values()))
    others = len(trace.instants) + sum(map(len, trace.counters.values()))
    dearest = max(hooks["span_us"], hooks["slice_us"], hooks["attempt_us"] / 2)
    return (slices * (dearest + 2 * hooks["written_us"]) + others * (hooks["count_us"] + hooks["written_us"])) / 1e6


if __name__ == "__main__":
    main()

"""How long a trace of a million slices takes to be read and judged. Target: under 20 seconds of one processor.

The trace is written as a run of some hours would: 64 workers that wait and work in turn, groups of eight, a sink that takes
sixteen of them a step, loads.
"""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flow.explain import explain
from flow.trace import PerfettoWriter, read_trace

WORKERS, MEMBERS, GROUPS, STEPS = 64, 8, 16, 2_960
WORK_S, STEP_S = 4.0, 10.0
TARGET_S = 20.0
_NODES = ("source", "repeat", "play", "groups", "sink")

About = tuple[str, Sequence[int], Mapping[str, Any]]


def main() -> None:
    """Print the measurements as one line of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.pftrace"
        write(path)
        begun = time.process_time()
        trace = read_trace(path)
        read_s = time.process_time() - begun
        verdict = explain(trace)
        total_s = time.process_time() - begun
        size_mb = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
    assert verdict.graphs[0].steps == STEPS
    million = 1e6 / verdict.slices
    detail = {"slices": verdict.slices, "read_s": read_s, "judge_s": total_s - read_s, "mb_a_million": size_mb * million}
    ratio = total_s * million / TARGET_S
    print(
        json.dumps({"bench": "verdict_speed", "ratios": {"to_target": ratio}, "targets": {"to_target": 1.0}, "detail": detail})
    )


def write(path: Path) -> None:
    """Steps in which members are played by all workers at once; a group leaves when its last member is there."""
    with PerfettoWriter(path, max_backlog=10**9, clock=lambda: 0) as writer:
        root = writer.track("graph line")
        nodes = {name: writer.track(name, root, rank=rank) for rank, name in enumerate(_NODES)}
        lanes = {name: writer.track(f"{name}/0", nodes[name]) for name in ("repeat", "groups", "sink")}
        workers = [writer.track(f"play/{index}", nodes["play"], rank=index) for index in range(WORKERS)]
        load = writer.track("weights (load)")
        for step in range(STEPS):
            write_step(writer, step, lanes, workers)
            ended = int((step + 1) * STEP_S * 1e9)
            writer.begin(load, "load", ended - 10**8, {"version": step + 1})
            writer.end(load, ended)


def write_step(writer: PerfettoWriter, step: int, lanes: Mapping[str, int], workers: Sequence[int]) -> None:
    """One step."""
    at = step * STEP_S
    births = range(step * GROUPS, (step + 1) * GROUPS)
    items = [(birth, member) for birth in births for member in range(MEMBERS)]
    opened = [mark for index, birth in enumerate(births) for mark in (at + index * 1e-6, ("repeat", birth, None))]
    writer.series(lanes["repeat"], [*opened, at + 1e-3, ("wait for ticket", "source->repeat", None)], about)
    for index, track in enumerate(workers):
        marks: list[Any] = []
        for turn, item in enumerate(items[index::WORKERS]):
            begun = at + 2e-3 + turn * (WORK_S + 0.1)
            marks += [begun, ("play", *item), begun + WORK_S - 0.2 * (item[1] % 3), ("wait for input", "repeat->play", None)]
        writer.series(track, marks, about)
    done = at + 2e-3 + len(items) / WORKERS * (WORK_S + 0.1)
    closed = [mark for index, birth in enumerate(births) for mark in (done + index * 1e-6, ("groups", birth, None))]
    writer.series(lanes["groups"], [*closed, done + 1e-3, ("wait for input", "play->groups", None)], about)
    added = [mark for index, birth in enumerate(births) for mark in (done + 2e-3 + index * 0.02, ("add", birth, None))]
    writer.series(lanes["sink"], [*added, done + 0.5, ("finish", births[-1], None)], about)
    writer.series(lanes["sink"], [at + STEP_S - 0.1, ("wait for input", "groups->sink", None)], about)


def about(what: Any) -> About:
    """Name, arrows and details of what a mark stands for."""
    name, one, member = what
    if name.startswith("wait"):
        return name, (), {"for": one}
    if name == "play":
        return name, [hash((one, member)) % 2**64], {"item": f"{one}.{member}", "birth": one, "member": member, "version": 1}
    if name in ("add", "finish"):
        return "sink", [one], {"call": name, "birth": one}
    return name, [one, *(hash((one, index)) % 2**64 for index in range(MEMBERS))], {"birth": one}


if __name__ == "__main__":
    main()

"""What a commit costs the loop: 4,096 episodes under way, and as many that are finished and wait for their groups, with arrays.

A finished episode holds 1,024 token ids, their log-probabilities, versions and mask: 13 kB, 55 MB in all. A sink takes a step
every half second, and each is followed by a commit.

* The pause: how long one commit holds the loop where the moment is taken, in the time of its own thread, since others want the
  processors too. Target: under 10 ms.
* The lag: how late a timer of 2 ms is while the thread encodes and writes. Target: under 10 ms at the 99th percentile
  on a machine that nobody else uses: ``lag_p99_without_ms`` tells whether it was one.
"""

import asyncio
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from flow import Collect, Context, Gathered, Graph, Items, Run
from flow.saving import Commits, Saving, newest
from flow.saving._points import listeners
from stages.arrays import ARRAYS

UNDER_WAY = 4096
TOKENS = 1024
MEMBERS = 8
STEPS = 16
TARGET_MS = 10.0


class Task(msgspec.Struct, frozen=True):
    """What an episode begins with."""

    name: str
    prompt: str
    seed: int


class Episode(msgspec.Struct, frozen=True):
    """What an episode ends with."""

    task: Task
    tokens: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    mask: np.ndarray
    reward: float
    status: str


class Tasks:
    """A source with a state."""

    def __init__(self) -> None:
        self._drawn = 0

    def draw(self) -> Task:
        """Give the next task, which has a text of some hundred letters."""
        self._drawn += 1
        return Task(f"task {self._drawn}", "What is the sum of all of these numbers? " * 10, self._drawn)

    def state(self) -> int:
        """How many were drawn."""
        return self._drawn

    def restore(self, state: int) -> None:
        """Go on behind these."""
        self._drawn = state


async def play(task: Task, context: Context) -> Episode:
    """Half of a group is finished at once, the other half never."""
    if context.member is not None and context.member % 2:
        await asyncio.sleep(1e6)
    rng = np.random.default_rng(context.path)
    ids, logprobs = rng.integers(0, 50_000, TOKENS, dtype=np.int32), rng.standard_normal(TOKENS).astype(np.float32)
    return Episode(task, ids, logprobs, np.zeros(TOKENS, np.int32), np.ones(TOKENS, bool), 0.5, "finished")


async def never(group: Gathered[Episode], context: Context) -> None:
    """No group is ever whole."""


class Steps:
    """A sink that takes a step now and then."""

    async def add(self, number: int, context: Context) -> None:
        """Wait, as for a batch."""
        await asyncio.sleep(0.5)

    def finish(self, context: Context) -> int:
        """Complete a step."""
        return 0


def graph() -> Graph:
    """Episodes that stay, and beside them a sink whose steps are followed by commits."""
    whole = Graph("pause")
    tasks = whole.source("tasks", Tasks())
    members = whole.repeat("members", tasks, n=MEMBERS)
    episodes = whole.stage("episodes", play, workers=UNDER_WAY, deadline_s=1e6)
    groups = whole.group("groups", episodes)
    tasks >> members >> episodes >> groups >> whole.sink("trainer", never)
    whole.edge(members, episodes, capacity=Items(MEMBERS))
    whole.source("ticks", range(STEPS)) >> whole.sink("steps", Steps(), collect=Collect(1, steps=STEPS))
    return whole


async def measure(folder: Path) -> dict[str, Any]:
    """Run it, and time the loop."""
    pauses: list[float] = []
    writing: list[tuple[float, float]] = []
    lags: list[tuple[float, float]] = []
    loop, enough = asyncio.get_running_loop(), asyncio.Event()
    began = {"cpu": 0.0, "thread": 0.0}

    def listener(point: str) -> None:
        now = time.perf_counter()
        if point == "commit.begin":
            began["cpu"] = time.thread_time()
        elif point == "commit.taken":
            pauses.append((time.thread_time() - began["cpu"]) * 1e3)
            began["thread"] = now
        elif point == "commit.renamed":
            writing.append((began["thread"], now))
            if len(writing) == STEPS - 2:
                loop.call_soon_threadsafe(enough.set)

    async def tick() -> None:
        while True:
            due = time.perf_counter() + 0.002
            await asyncio.sleep(0.002)
            now = time.perf_counter()
            lags.append((now, (now - due) * 1e3))

    listeners.append(listener)
    ticking = loop.create_task(tick())
    with Commits(folder, keep=1, hooks=ARRAYS) as commits:
        run = Run(graph().build(quiet=True), saving=Saving(commits), stall_s=None)
        running = loop.create_task(run.finish())
        await enough.wait()
        run.abort(TimeoutError("enough"))
        await asyncio.wait([running])
        assert isinstance(running.exception(), TimeoutError)
    ticking.cancel()
    listeners.remove(listener)
    quiet = [lag for at, lag in lags if not any(begin <= at <= end + 0.01 for begin, end in writing[3:])]
    busy = [lag for at, lag in lags if any(begin <= at <= end + 0.01 for begin, end in writing[3:])]
    commit = newest(folder)
    assert commit is not None
    under_way = run.state.nodes["episodes"].meter.finished
    assert commit.manifest.moment_bytes > UNDER_WAY * TOKENS * 13 * 0.9, under_way
    return {
        "pauses_ms": pauses[3:],
        "lag_ms": sorted(busy),
        "quiet_lag_ms": sorted(quiet),
        "seconds": [end - begin for begin, end in writing[3:]],
        "bytes": commit.manifest.moment_bytes,
    }


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        gc.collect()
        found = asyncio.run(measure(Path(folder) / "checkpoints"))
    pauses, lags, quiet, seconds = (found[name] for name in ("pauses_ms", "lag_ms", "quiet_lag_ms", "seconds"))
    p99, pause = _quantile(lags, 0.99), statistics.median(pauses)
    detail = {
        "pause_ms": {"median": pause, "max": max(pauses)},
        "lag_p99_ms": p99,
        "lag_max_ms": lags[-1],
        "lag_p99_without_ms": _quantile(quiet, 0.99),
        "seconds": statistics.median(seconds),
        "bytes": found["bytes"],
        "timers": len(lags),
    }
    print(f"the moment of {UNDER_WAY} episodes under way and {UNDER_WAY} finished holds the loop for {pause:.1f} ms;")
    print(f"while {found['bytes'] / 1e6:.0f} MB are written in {detail['seconds']:.2f} s, its lag is {p99:.1f} ms at p99,")
    print(f"and {detail['lag_p99_without_ms']:.1f} ms while nothing is written")
    ratios = {"pause_of_10_ms": pause / TARGET_MS, "lag_p99_of_10_ms": p99 / TARGET_MS}
    print(json.dumps({"bench": "commit_pause", "ratios": ratios, "targets": dict.fromkeys(ratios, 1.0), "detail": detail}))


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    main()

"""A long run of tiny items with a commit at every step: neither its memory nor its commits grow with its length."""

import gc
import random
import statistics
import tracemalloc
from pathlib import Path

import pytest
from saved_program import Counted, Sum

from flow import Collect, Context, Drop, Freshness, Gathered, Graph, Retry, Run
from flow.saving import Commits, Saving, newest
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor


class Steps(Sum):
    """Keeps nothing of what it took."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[int, int]] = []
        self.folder, self.num_steps = Path(), 0

    async def add(self, value: Gathered[int], context: Context) -> None: ...

    async def finish(self, context: Context) -> int:
        self.num_steps += 1
        if self.num_steps % 50 == 0:
            gc.collect()
            commit = newest(self.folder)
            size = commit.manifest.moment_bytes + (commit.folder / "manifest.json").stat().st_size
            self.marks.append((tracemalloc.get_traced_memory()[0], size))
        return self.num_steps


def grown(folder: Path, steps: int) -> list[tuple[int, int]]:
    """Bytes of memory and of the newest commit, after every fifty steps."""
    sink, rnd = Steps(), random.Random(0)
    sink.folder = folder

    async def play(number: int, context: Context) -> int:
        if rnd.random() < 0.1:
            raise ValueError("drawn")
        return number

    graph = Graph("long")
    cell = graph.latest("weights", int)
    numbers = graph.source("numbers", Counted(10**9))
    members = graph.repeat("members", numbers, n=2)
    plays = graph.stage("plays", play, workers=4, reads=cell, on_error=Retry(1, then=Drop(10**9, 10**9)))
    groups = graph.group("groups", plays, missing=Retry(1, then="drop"), budget=None)
    steps_taken = graph.sink("steps", sink, collect=Collect(2, steps=steps))
    numbers >> members >> plays >> groups >> steps_taken
    graph.feedback(steps_taken, cell, initial=0, freshness=Freshness(1))

    async def main() -> None:
        with Commits(folder) as commits:
            run = Run(graph.build(quiet=True), stall_s=None, saving=Saving(commits))
            run.threads = PlayedExecutor
            await run.finish()

    tracemalloc.start()
    try:
        run_virtual(main())
    finally:
        tracemalloc.stop()
    return sink.marks


def check_level(marks: list[tuple[int, int]]) -> None:
    """In the last third as much as in the middle one. A median, since what Python keeps for itself comes and goes."""
    third = len(marks) // 3
    for name, sizes in zip(("memory", "commits"), zip(*marks, strict=True), strict=True):
        before, after = statistics.median(sizes[third : 2 * third]), statistics.median(sizes[2 * third :])
        assert after < 1.1 * before + 1000, f"{name}: {sizes}"


@pytest.mark.slow
def test_memory_and_commits_of_a_long_run_level_off(ram):
    """S25."""
    check_level(grown(ram, 300))


@pytest.mark.soak
def test_memory_and_commits_of_2000_steps_level_off(ram):
    """S25."""
    marks = grown(ram, 2000)
    print(
        "\n".join(
            f"after {50 * (n + 1)} steps: {memory:,} bytes of memory, {size:,} of the commit"
            for n, (memory, size) in enumerate(marks)
        )
    )
    check_level(marks)

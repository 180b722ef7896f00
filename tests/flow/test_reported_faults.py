"""Scenarios of faults that were reported of other systems and belong to no single file here."""

import asyncio
import gc
import itertools
import threading

import pytest

from flow import Collect, Context, Drop, Filtered, Freshness, Gathered, Graph, Run, Threads
from flow.testing import run_virtual


@pytest.mark.slow
def test_an_interrupt_ends_though_the_cleaning_up_needs_another_thread():
    """S21: a call runs on a thread, another stage's finally block uses a thread too; both end, and so does the run."""
    log: list[str] = []
    inside, may_end = threading.Event(), threading.Event()

    def block(value: int, context: Context) -> int:
        inside.set()
        may_end.wait(10)
        log.append("the call on a thread")
        return value

    async def tidy(value: int, context: Context) -> int:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.to_thread(may_end.set)
            log.append("the finally block")
        return value

    class Closes:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None:
            await asyncio.to_thread(log.append, "the closing of a stage")

        def __call__(self, value: int, context: Context) -> None: ...

    graph = Graph("cleaning")
    _ = graph.source("a", range(3)) >> graph.stage("block", block, placement=Threads()) >> graph.sink("b", Closes())
    _ = graph.source("c", range(3)) >> graph.stage("tidy", tidy) >> graph.sink("d", lambda value, context: None)

    async def main() -> Run:
        run = Run(graph.build())
        task = asyncio.create_task(run.finish())
        await asyncio.to_thread(inside.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return run

    assert asyncio.run(main()).summary().abandoned == ()
    assert sorted(log[:2]) == ["the call on a thread", "the finally block"]
    assert log[2:] == ["the closing of a stage"]


@pytest.mark.parametrize("seed", range(5))
def test_a_reader_hears_of_the_end_when_the_last_of_many_writers_is_done(seed):
    """S22: no writer has an end of the edge of its own that it could forget to close, killed on the way or not."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(value % 3)
        return value

    got: list[int] = []
    graph = Graph("writers")
    stage = graph.stage("stage", work, workers=3)
    _ = graph.source("source", range(10)) >> stage >> graph.sink("sink", lambda value, context: got.append(value))
    run = Run(graph.build())

    async def main() -> None:
        async with asyncio.timeout(100):
            await run.finish()

    run_virtual(main(), seed=seed, kill=0.1)
    assert sorted(got) == list(range(10))
    assert all(edge.closed for node in run.state.nodes.values() for edge in node.inputs)


@pytest.mark.slow
def test_memory_levels_off():
    """S25: hundreds of steps of small episodes, with failures, drops, retries, tickets; nothing of a finished one is kept."""

    def play(value: int, context: Context) -> int | Filtered:
        if context.birth % 10 == 3:
            raise ValueError("broken")
        return Filtered("dull") if context.birth % 10 == 5 else value

    counts: list[int] = []

    class Learner:
        def __init__(self) -> None:
            self.steps = 0

        def add(self, group: Gathered[int], context: Context) -> None: ...

        def finish(self, context: Context) -> int:
            self.steps += 1
            if self.steps in (100, 200, 500):
                gc.collect()
                counts.append(len(gc.get_objects()))
            return self.steps

    graph = Graph("long")
    cell = graph.latest("weights", int)
    tasks = graph.source("tasks", itertools.count())
    members = graph.repeat("members", tasks, n=2)
    stage = graph.stage("play", play, workers=3, on_error=Drop(), reads=cell, deadline_s=100)
    groups = graph.group("groups", stage)
    learner = graph.sink("learn", Learner(), collect=Collect(2, steps=501))
    _ = tasks >> members >> stage >> groups >> learner
    graph.feedback(learner, cell, initial=0, freshness=Freshness(max_lag=1))
    summary = run_virtual(Run(graph.build()).finish())
    assert sum(summary.nodes["groups"].dropped.values()) > 100
    assert max(counts) - min(counts) < 100

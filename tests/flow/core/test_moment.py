"""The moment of a graph that runs: suspended anywhere and gone on with in a fresh run, all is as if it had never stopped.

What must reach the sink is what the interpreter of random graphs says; every run begins with new stages, and its source where
the one before it stopped.
"""

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from core_look import plain

from flow import Collect, Context, Drop, Freshness, Graph, Items, Plan, Retry, Run, Summary
from flow._core.moment import Moment, capture, restore
from flow.testing import Collected, expected, random_graph, reached, run_virtual
from flow.testing._oracle import Expected, _differences
from flow.testing._threads import PlayedExecutor


def go_on(
    plan: Plan, moment: Moment | None, stop_after_s: float | None, seed: int, kill: float
) -> tuple[Summary, Moment, dict[str, int]]:
    """Run from a moment on, up to a time; gives the moment it stopped at, and how many items each source had sent by then."""

    async def main() -> tuple[Summary, Moment, dict[str, int]]:
        run = Run(plan)
        run.threads = PlayedExecutor
        if moment is not None:
            restore(run.state, moment)
            assert plain(capture(run.state)) == plain(moment)
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, run.suspend)
        async with asyncio.timeout(10**6):
            summary = await run.finish()
        sent = {name: node.output.put_count for name, node in run.state.nodes.items() if node.spec.kind == "source"}
        return summary, capture(run.state), sent

    return run_virtual(main(), seed=seed, kill=kill)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_a_run_that_is_suspended_again_and_again_ends_as_the_interpreter_says(block):
    """C1, P1, P2, P6: random graphs with failures, retries and several outputs; nothing lost, nothing twice."""
    stops = 0
    for seed in range(block * 12, block * 12 + 12):
        drawn, clock = replace(random_graph(random.Random(seed)), collect=None), random.Random(seed)
        sinks, sent, moment, summary = defaultdict(Collected), {}, None, None
        for stop_after_s in (*(clock.choice([0.0, clock.random(), 5 * clock.random()]) for _ in range(4)), None):
            whole = drawn.graph(sinks)
            for source, count in sent.items():
                whole = whole.replace(source, whole.spec().nodes[source].stage[count:])
            summary, moment, sent = go_on(whole.build(), moment, stop_after_s, seed, kill=(0, 0.1)[seed % 2])
            assert summary.faults == ()
            if summary.status == "completed":
                break
            stops += 1
        assert summary is not None
        assert (summary.status, summary.leftovers) == ("completed", {}), f"seed {seed}"
        want = expected(drawn)
        for end in sorted({*sinks, *want}):
            known = want.get(end, Expected(Counter(), Counter()))
            assert list(_differences(end, known, reached(sinks[end]))) == [], f"seed {seed}"
    assert stops > 25


class Steps:
    """A sink that remembers what a step took once the step is complete."""

    def __init__(self, trained: list[tuple[int, ...]], lags: list[int | None], clock: random.Random) -> None:
        self.trained, self.lags, self.clock, self.step = trained, lags, clock, []

    async def add(self, group: object, context: Context) -> None:
        await asyncio.sleep(self.clock.choice([0, 0.3]))
        self.step.append(context.path)
        self.lags.append(context.lag)

    async def finish(self, context: Context) -> str:
        await asyncio.sleep(self.clock.random())
        self.trained += self.step
        self.step = []
        return "next"


@pytest.mark.slow
@pytest.mark.parametrize("late", ["wait", "drop"])
def test_training_that_is_suspended_takes_its_steps_each_group_once_and_none_too_old(late):
    """F3, F4, G1, P2: half groups, half steps, tickets out and weights on their way when it stops."""
    stops = 0
    for seed in range(40):
        clock, steps, trained, lags = random.Random(seed), 6, [], []
        max_lag, per_step = seed % 3, 1 + seed % 2

        async def work(value: int, context: Context, clock=clock) -> int:
            await asyncio.sleep(clock.choice([0, clock.random(), min(clock.paretovariate(1.5), 50)]))
            if clock.random() < 0.1:
                raise ValueError("drawn")
            return value

        async def load(value: str, version: int, clock=clock) -> None:
            await asyncio.sleep(clock.choice([0, 2 * clock.random()]))

        moment, cursor, summary = None, {}, None
        for stop_after_s in (*(clock.choice([0.0, clock.random(), 8 * clock.random()]) for _ in range(5)), None):
            graph = Graph("training")
            cell = graph.latest("w", str, load=load)
            tasks = graph.source("tasks", itertools.count(cursor.get("tasks", 0)))
            members = graph.repeat("members", tasks, n=2)
            worked = graph.stage("work", work, workers=3, reads=cell, on_error=Drop(10**6, 10**6))
            groups = graph.group("groups", worked, missing=Retry(1, then="drop"), budget=None)
            sink = graph.sink("train", Steps(trained, lags, clock), collect=Collect(per_step, steps=steps))
            _ = tasks >> members >> worked >> groups >> sink
            graph.edge(groups, sink, capacity=Items(6))
            graph.feedback(sink, cell, initial="newest", freshness=Freshness(max_lag, late))
            summary, moment, cursor = go_on(graph.build(), moment, stop_after_s, seed, kill=0.0)
            assert summary.faults == ()
            if summary.status == "completed":
                break
            stops += 1
        assert summary is not None
        assert summary.status == "completed", f"seed {seed}"
        assert len(trained) == len(set(trained)) == steps * per_step, f"seed {seed}"
        assert all(lag is not None and 0 <= lag <= max_lag for lag in lags), f"seed {seed}"
    assert stops > 100

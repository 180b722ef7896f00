"""F5: the depth of a feedback edge says how much is on its way, its bound how old the oldest may become."""

import asyncio
import itertools
import random
import statistics

import pytest

from flow import Collect, Context, Freshness, Graph, Items, Run
from flow._core.freshness import tickets_of
from flow.testing import run_virtual


class Trainer:
    """Notes the lag of what it takes."""

    def __init__(self) -> None:
        self.lags: list[int] = []

    async def add(self, group: object, context: Context) -> None:
        assert context.lag is not None
        self.lags.append(context.lag)

    async def finish(self, context: Context) -> str:
        await asyncio.sleep(1.0)
        return "next"


def graph_of(freshness: Freshness, per_step: int = 2, steps: int = 60, seed: int = 0) -> tuple[Graph, Trainer]:
    rnd, trainer, graph = random.Random(seed), Trainer(), Graph("deep")

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(min(20.0, 0.4 * rnd.paretovariate(1.5)))
        return value

    cell = graph.latest("w", str)
    tasks = graph.source("tasks", itertools.count())
    members = graph.repeat("members", tasks, n=1)
    worked = graph.stage("work", work, workers=40, reads=cell)
    groups = graph.group("groups", worked)
    sink = graph.sink("train", trainer, collect=Collect(per_step, steps=steps))
    _ = tasks >> members >> worked >> groups >> sink
    graph.edge(groups, sink, capacity=Items(40))
    graph.feedback(sink, cell, initial="first", freshness=freshness)
    return graph, trainer


@pytest.mark.parametrize(("max_lag", "depth", "tickets"), [(3, None, 8), (3, 0, 2), (3, 1, 4), (3, 3, 8), (0, 0, 2)])
def test_there_are_tickets_for_a_step_and_for_each_of_the_depth(max_lag, depth, tickets):
    freshness = Freshness(max_lag, depth=depth)
    assert tickets_of(freshness, 2) == tickets
    run = Run(graph_of(freshness)[0].build())
    admission = run.state.nodes["train"].admission
    assert admission is not None
    assert admission.capacity == tickets


@pytest.mark.parametrize("depth", [-1, 4])
def test_a_depth_beyond_the_bound_is_refused(depth, refusal):
    (fault,) = [fault for fault in refusal(graph_of(Freshness(3, depth=depth))[0]).faults if fault.rule == "F5"]
    assert (fault.expected, fault.got) == ("from 0 to max_lag, which is 3", str(depth))
    assert fault.path.endswith("depth")


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_items_are_about_as_old_as_the_depth_and_slow_ones_still_go_in_within_the_bound(depth):
    """The mean follows the depth; the bound is reached by stragglers only, and nothing is dropped for age."""
    graph, trainer = graph_of(Freshness(max_lag=4, depth=depth))
    summary = run_virtual(Run(graph.build()).finish(), seed=depth)
    assert statistics.mean(trainer.lags) == pytest.approx(depth, abs=0.4)
    assert max(trainer.lags) <= 4
    assert len(trainer.lags) == 120
    assert not any("stale" in node.dropped for node in summary.nodes.values())


def test_a_bound_wider_than_the_depth_waits_less_for_stragglers():
    """What the bound is for: the same number on its way, and time for the slow ones."""
    seconds = {}
    for max_lag in (1, 4):
        graph, _ = graph_of(Freshness(max_lag, depth=1))

        async def lasts(graph=graph) -> float:
            await Run(graph.build()).finish()
            return asyncio.get_running_loop().time()

        seconds[max_lag] = run_virtual(lasts(), seed=1)
    assert seconds[4] < 0.9 * seconds[1]

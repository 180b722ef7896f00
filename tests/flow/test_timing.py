"""With a lag of 0 the result of a run is a function of its source and its stages, and of no delay."""

import asyncio
import random

import pytest

from flow import Collect, Context, Failed, Filtered, Freshness, Gathered, Graph, Retry, Run, Threads
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor

Rows = list[tuple[int, list[tuple[int, int | None, tuple[int, ...]]]]]


class Summing:
    """A sink whose weight depends on all it was given, on the order of that, and on how old it was."""

    def __init__(self, delays: random.Random) -> None:
        self.weight, self.rows, self._delays = 1, Rows(), delays
        self._step: list[tuple[int, int | None, tuple[int, ...]]] = []

    async def add(self, group: Gathered[int], context: Context) -> None:
        await asyncio.sleep(self._delays.choice([0, 0.2]))
        self._step.append((context.birth, context.lag, tuple(group.members)))

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(self._delays.choice([0, 0.5]))
        for birth, _, members in self._step:
            for value in members:
                self.weight = (self.weight * 31 + birth * 7 + value) % 1_000_003
        self.rows.append((self.weight, self._step))
        self._step = []
        return self.weight


def run(seed: int, max_lag: int, *, slow_load: bool = False) -> Rows:
    """A run with tools whose delays are drawn from a seed; some episodes fail at first, some for good."""
    delays = random.Random(seed)
    sink = Summing(delays)

    async def tool() -> None:
        await asyncio.sleep(delays.paretovariate(1.2) - 1)

    async def play(number: int, context: Context) -> int | Failed[int]:
        await tool()
        version = context.read()
        await tool()
        if (number + context.member + context.retry) % 4 == 0 or (number % 7, context.member) == (3, 1):
            return Failed(0, "unlucky")
        return (version.value * 3 + number * 11 + context.member + 100 * context.retry) % 10_007

    async def load(value: int, version: int) -> None:
        await asyncio.sleep(3 * delays.random() if slow_load else 0)

    def score(group: Gathered[int], context: Context) -> Gathered[int] | Filtered:
        return Filtered("no signal") if group.members[0] % 9 == 0 else group

    async def main() -> None:
        graph = Graph("timing")
        cell = graph.latest("weight", int, load=load)
        numbers = graph.source("numbers", range(1000))
        members = graph.repeat("members", numbers, n=3)
        played = graph.stage("play", play, workers=delays.choice([2, 5, 30]), reads=cell, deadline_s=None)
        groups = graph.group("groups", played, missing=Retry(1, then="drop"))
        scored = graph.stage("score", score, workers=3, placement=Threads())
        trainer = graph.sink("trainer", sink, collect=Collect(4, steps=10))
        numbers >> members >> played >> groups >> scored >> trainer
        graph.feedback(trainer, cell, initial=1, freshness=Freshness(max_lag))
        running = Run(graph.build(quiet=True), stall_s=None)
        running.threads = PlayedExecutor
        assert (await running.finish()).balanced

    run_virtual(main(), seed=seed)
    return sink.rows


@pytest.fixture(scope="module")
def first() -> Rows:
    return run(0, 0)


@pytest.mark.parametrize("seed", range(1, 25))
def test_whatever_tools_loads_and_threads_take_the_same_groups_make_the_same_weights_in_the_same_order(first: Rows, seed: int):
    """Nothing is recorded and nothing has to be: groups of a step are known when they are opened, and taken in birth order."""
    assert run(seed, 0, slow_load=seed % 2 == 0) == first


def test_the_runs_compared_are_ones_in_which_something_happens(first: Rows):
    """Ten steps of four groups; some were dropped or filtered, so births have gaps."""
    births = [birth for _, step in first for birth, _, _ in step]
    assert len(births) == 40
    assert max(births) > 44
    assert births == sorted(births)
    assert {lag for _, step in first for _, lag, _ in step} == {0}
    assert len({weight for weight, _ in first}) == 10


def test_with_a_lag_the_same_delays_do_change_the_result():
    """So the comparison above is one that can fail, and a run with a lag has to be recorded to be replayed."""
    assert len({str(run(seed, 1)) for seed in range(6)}) > 1

"""A stage with a key: equal keys one at a time and in their order, others at once; with kills, retries and deadlines."""

import asyncio
import random
from collections import Counter, defaultdict

import pytest

from flow import Context, Drop, Graph, Items, Retry, Run, StageFailed
from flow.testing import run_virtual

COUNT, KEYS = 40, 4


@pytest.mark.parametrize("seed", range(20))
def test_items_of_a_key_are_handled_one_at_a_time_and_leave_in_their_order(seed):
    """S2: the number at work of each key is never 2, whatever is killed; and several keys are at work at once."""
    rnd, at_work, most, left = random.Random(seed), Counter(), 0, defaultdict(list)

    async def work(value: int, context: Context) -> int:
        nonlocal most
        key = value % KEYS
        at_work[key] += 1
        try:
            assert at_work[key] == 1
            most = max(most, at_work.total())
            await asyncio.sleep(rnd.choice([0, rnd.random(), 4 * rnd.random()]))
            if rnd.random() < 0.1:
                raise ValueError("drawn")
        finally:
            at_work[key] -= 1
        return value

    class Watch:
        def committed(self, node, values):
            for value in values if node == "b" else ():
                left[value % KEYS].append(value)

        def reported(self, node, row): ...

    graph, got = Graph("keyed"), []

    def keep(value: int, context: Context) -> None:
        got.append(value)

    a, sink = graph.source("a", range(COUNT)), graph.sink("sink", keep)
    policy = Retry(9, then=Drop(COUNT, COUNT))
    b = graph.stage("b", work, workers=6, key=lambda value: value % KEYS, on_error=policy)
    _ = a >> b >> sink
    graph.edge(a, b, capacity=Items(rnd.randint(1, 8)))
    run = Run(graph.build(), watchers=(Watch(),))
    summary = run_virtual(run.finish(), seed=seed, kill=(0, 0.1)[seed % 2])
    assert summary.balanced
    assert Counter(got) == Counter(range(COUNT))
    assert all(values == sorted(values) for values in left.values())
    assert run.state.nodes["b"].busy == set()
    assert most > 1 or run.state.nodes["b"].inputs[0].max_items == 1


def test_a_slow_key_holds_up_its_own_items_only():
    """S2: others overtake what waits for its key."""
    order = []

    async def work(value: str, context: Context) -> str:
        await asyncio.sleep(10 if value == "slow 0" else 1)
        return value

    def keep(value: str, context: Context) -> None:
        order.append(value)

    graph = Graph("keyed")
    a = graph.source("a", ["slow 0", "slow 1", "quick 0", "quick 1"])
    b = graph.stage("b", work, workers=2, key=lambda value: value.split()[0])
    _ = a >> b >> graph.sink("sink", keep)
    run_virtual(Run(graph.build()).finish())
    assert order == ["quick 0", "quick 1", "slow 0", "slow 1"]


def test_a_key_that_raises_ends_the_run_and_names_the_item():
    async def work(value: int, context: Context) -> int:
        return value

    graph = Graph("keyed")
    a, sink = graph.source("a", [1, 2, 0]), graph.sink("sink", lambda value, context: None)
    _ = a >> graph.stage("b", work, workers=2, key=lambda value: 1 // value) >> sink
    with pytest.raises(StageFailed) as caught:
        run_virtual(Run(graph.build()).finish())
    assert (caught.value.node, caught.value.path) == ("b", (2,))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)

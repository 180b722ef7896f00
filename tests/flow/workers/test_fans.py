"""Branching graphs at work, in virtual time, with workers killed as soon as they are woken."""

import asyncio
import random
from collections import Counter

import pytest

from flow import BudgetExceeded, Collect, Context, Drop, Fail, Graph, Items, Node, Run, StageFailed, Summary
from flow.testing import run_virtual

COUNT = 20


class World:
    """A graph under construction whose stages take random times and whose sinks remember what they were given."""

    def __init__(self, seed: int) -> None:
        self.rnd, self.graph = random.Random(seed), Graph("branches")
        self.got: dict[str, list[tuple[int, ...]]] = {}

    async def pause(self) -> None:
        await asyncio.sleep(self.rnd.choice([0, 0, self.rnd.random(), 3 * self.rnd.random()]))

    def stage(self, name: str) -> Node:
        async def work(value: int, context: Context) -> int:
            await self.pause()
            return value

        return self.graph.stage(name, work, workers=self.rnd.randint(1, 3))

    def sink(self, name: str) -> Node:
        self.got[name] = []

        async def keep(value: int, context: Context) -> None:
            await self.pause()
            self.got[name].append(value)

        return self.graph.sink(name, keep)

    def finish(self, seed: int, kill: float = 0.15) -> Summary:
        for edge in list(self.graph._edges.values()):
            if self.rnd.random() < 0.5:
                left, right = Node(self.graph, edge.source), Node(self.graph, edge.target)
                self.graph.edge(left, right, capacity=Items(self.rnd.randint(1, 3)))
        summary = run_virtual(Run(self.graph.build()).finish(), seed=seed, kill=kill)
        assert (summary.status, summary.faults, summary.leftovers) == ("completed", (), {})
        return summary


@pytest.mark.parametrize("seed", range(12))
def test_every_branch_of_a_broadcast_gets_every_item_once(seed):
    """C1, C9."""
    world = World(seed)
    graph, source = world.graph, world.graph.source("a", range(COUNT))
    copies = graph.broadcast("copies", source)
    _ = source >> copies >> world.stage("slow") >> world.sink("first")
    _ = copies >> world.sink("second")
    world.finish(seed)
    assert [Counter(got) for got in world.got.values()] == [Counter(range(COUNT))] * 2


@pytest.mark.parametrize("seed", range(12))
def test_a_balance_gives_every_item_to_one_branch(seed):
    world = World(seed)
    graph, source = world.graph, world.graph.source("a", range(COUNT))
    shares = graph.balance("shares", source)
    for name in ("x", "y", "z"):
        _ = shares >> world.stage(f"work {name}") >> world.sink(name)
    _ = source >> shares
    world.finish(seed)
    assert Counter(value for got in world.got.values() for value in got) == Counter(range(COUNT))
    assert all(world.got.values())


@pytest.mark.parametrize("seed", range(12))
def test_a_route_and_a_merge_bring_every_item_together_again_each_branch_in_its_order(seed):
    """C1, C7, S2."""
    world = World(seed)
    graph, source = world.graph, world.graph.source("a", range(COUNT))
    low, high = world.stage("low"), world.stage("high")
    graph = world.graph = graph.with_("low", workers=1).with_("high", workers=1)
    source, low, high = (Node(graph, name) for name in ("a", "low", "high"))
    kinds = graph.route("kinds", source, by=lambda value: value % 3 == 0, to={True: low, False: high})
    joined = graph.merge("joined", [low, high], weights={"high": 2})
    _ = source >> kinds
    _ = joined >> world.sink("sink")
    world.finish(seed)
    got = world.got["sink"]
    assert Counter(got) == Counter(range(COUNT))
    if seed % 2 == 0:  # without a cancel of the sink's worker nothing changes its place
        for third in (True, False):
            of_branch = [value for value in got if (value % 3 == 0) is third]
            assert of_branch == sorted(of_branch)


@pytest.mark.parametrize("seed", range(6))
def test_items_of_two_sources_that_meet_are_told_apart(seed):
    """C1: paths of sources that may stand on one edge begin with the number of the source."""
    world, paths = World(seed), []
    graph = world.graph
    a, b = graph.source("a", range(COUNT)), graph.source("b", range(COUNT))
    joined = graph.merge("joined", [a, b])

    def keep(value: int, context: Context) -> None:
        paths.append(context.path)

    _ = joined >> graph.sink("sink", keep)
    world.finish(seed)
    assert sorted(paths) == [(source, number) for source in (0, 1) for number in range(COUNT)]


def routed(on_error: object) -> tuple[Graph, list[int]]:
    graph, got = Graph("routed"), []

    def keep(value: int, context: Context) -> None:
        got.append(value)

    a = graph.source("a", range(COUNT))
    first, second = graph.sink("first", keep), graph.sink("second", keep)
    kinds = graph.route(
        "kinds", a, by=lambda value: 12 // (value - 4) and value % 3, to={0: first, 1: second}, on_error=on_error
    )
    _ = a >> kinds
    return graph, got


def test_what_has_no_branch_or_no_key_is_dropped_where_that_is_asked_for():
    graph, got = routed(Drop(COUNT, COUNT))
    summary = run_virtual(Run(graph.build()).finish())
    kept = [value for value in range(COUNT) if value != 4 and (12 // (value - 4) and value % 3) in (0, 1)]
    assert sorted(got) == kept
    assert dict(summary.nodes["kinds"].dropped) == {"KeyError": COUNT - 1 - len(kept), "ZeroDivisionError": 1}
    assert summary.balanced


def test_too_many_items_without_a_branch_end_the_run():
    with pytest.raises(BudgetExceeded, match="kinds"):
        run_virtual(Run(routed(Drop(1, COUNT))[0].build()).finish())


def test_an_item_without_a_branch_ends_the_run_and_names_itself():
    with pytest.raises(StageFailed, match="kinds") as caught:
        run_virtual(Run(routed(Fail())[0].build()).finish())
    assert caught.value.path == (2,)
    assert isinstance(caught.value.__cause__, KeyError)


class Steps:
    """A sink that counts steps."""

    def __init__(self) -> None:
        self.steps = 0

    async def add(self, value: int, context: Context) -> None:
        await asyncio.sleep(0.1)

    async def finish(self, context: Context) -> str:
        self.steps += 1
        return "next"


@pytest.mark.parametrize("kind", ["broadcast", "balance"])
@pytest.mark.parametrize("steps", [(3, 9), (9, 3), (4, 4)])
def test_a_fan_goes_on_until_the_last_of_its_sinks_has_all_its_steps(kind, steps):
    """C4: the branch of the sink that is complete is drained meanwhile, so that it holds nobody up."""
    graph, sinks = Graph("two"), (Steps(), Steps())
    source = graph.source("a", iter(int, 1))
    fan = getattr(graph, kind)("fan", source)
    _ = source >> fan
    for number, (sink, count) in enumerate(zip(sinks, steps, strict=True)):
        _ = fan >> graph.sink(f"sink {number}", sink, collect=Collect(2, steps=count))
    summary = run_virtual(Run(graph.build()).finish(), seed=1)
    assert (summary.status, summary.balanced) == ("completed", True)
    assert tuple(sink.steps for sink in sinks) == steps

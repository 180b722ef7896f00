"""Whoever keeps the tally hears of each draw once, and of the one end that each value comes to, whatever happens on the way."""

import asyncio
from collections import Counter

import pytest

from flow import Collect, Context, Drop, Failed, Filtered, Freshness, Gathered, Graph, Many, Shrink, Threads
from flow.testing import simulate


class Kept:
    """A tally of numbers. What was made of a number still says it: a number, a gathered group of them, or a pair of both."""

    def __init__(self) -> None:
        self.draws: Counter[int] = Counter()
        self.ends: dict[str | None, Counter[int]] = {}

    def drawn(self, node, values):
        self.draws.update(values)

    def ended(self, node, values, reason):
        self.ends.setdefault(reason, Counter()).update(map(number, values))

    @property
    def all_ends(self) -> Counter[int]:
        return sum(self.ends.values(), Counter())


def number(value) -> int:
    return value.members[0] if isinstance(value, Gathered) else value


class Steps:
    """A sink that collects."""

    async def add(self, value: Gathered[int], context: Context) -> None:
        await asyncio.sleep(0.2)

    def finish(self, context: Context) -> int:
        return 0


async def play(value: int, context: Context) -> int | Failed[int]:
    await asyncio.sleep(0.1 + (value * 7 + context.member * 3) % 11 * (1.0 if value % 13 else 9.0))
    if value % 5 == 4 and context.member == 0:
        return Failed(value, "lost")
    return value


async def keep(group: Gathered[int], context: Context) -> Gathered[int] | Filtered:
    await asyncio.sleep(0.1)
    return Filtered("dull") if number(group) % 3 == 0 else group


def training(missing="drop", late="drop", steps: int | None = 8, measured: bool = False) -> Graph:
    graph = Graph("training")
    cell = graph.latest("cell", int)
    numbers = graph.source("numbers", range(200))
    members = graph.repeat("members", numbers, n=2)
    played = graph.stage("played", play, workers=8, reads=cell, budget=None)
    groups = graph.group("groups", played, missing=missing, budget=None)
    kept = graph.stage("kept", keep, workers=2, budget=None)
    sink = graph.sink("sink", Steps(), collect=Collect(3, steps=steps))
    numbers >> members >> played >> groups >> kept >> sink
    graph.feedback(sink, cell, initial=0, freshness=Freshness(max_lag=2, late=late))
    if measured:
        versions = graph.versions("versions", cell)
        looked = graph.stage("looked", lambda version, context: Many([1000 + version, 1001 + version]), budget=None)
        some = graph.stage("some", lambda value, context: Filtered("dull") if value % 2 else value, budget=None)
        versions >> looked >> some >> graph.sink("seen", lambda value, context: None)
    return graph


@pytest.mark.parametrize("seed", range(6))
def test_each_draw_has_one_end_by_the_reason_that_the_summary_counts(seed):
    """Kills, failures, filters and staleness: 24 are taken, the others are given up, and none twice."""
    tally = Kept()
    ran = simulate(training(), seed, kill=0.02, late=0.05, tally=tally)
    assert tally.draws == tally.all_ends
    assert set(tally.draws.values()) == {1}
    nodes = ran.summary.nodes
    assert tally.draws.total() == nodes["numbers"].emitted
    assert tally.ends[None].total() == 3 * nodes["sink"].emitted == 24
    dropped = sum((Counter(node.dropped) for node in nodes.values()), Counter())
    members = Counter(nodes["played"].dropped)
    assert {reason: ends.total() for reason, ends in tally.ends.items() if reason} == dict(dropped - members)
    assert {"dull", "member failed: lost"} <= set(dropped)


def test_what_became_too_old_ends_as_stale():
    ends = Counter()
    for seed in range(4):
        tally = Kept()
        simulate(training(), seed, tally=tally)
        ends.update({reason: found.total() for reason, found in tally.ends.items()})
    assert ends["stale"] > 0


def test_a_group_that_shrank_is_taken():
    """The failed member of 4, 9, ... is missing, its group is not."""
    tally = Kept()
    simulate(training(Shrink(1), "wait", steps=None), tally=tally)
    assert {value % 5 for value in tally.ends[None]} == {0, 1, 2, 3, 4}
    assert tally.draws == tally.all_ends


@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_a_plain_sink_takes_has_ended(asynchronous):
    async def look(value: int, context: Context) -> None:
        await asyncio.sleep(0)

    tally = Kept()
    graph = Graph("plain")
    numbers = graph.source("numbers", range(50))
    few = graph.stage("few", lambda value, context: Many([value] if value % 2 else []))
    sink = graph.sink("sink", look if asynchronous else lambda value, context: None, on_error=Drop())
    numbers >> few >> sink
    simulate(graph, tally=tally)
    assert tally.ends == {None: Counter(range(1, 50, 2)), "no output": Counter(range(0, 50, 2))}
    assert tally.draws == Counter(range(50))


def test_what_begins_at_a_version_was_never_drawn_and_is_not_told():
    """A branch beside the line that draws, as an evaluation is; its items end too, and by failures as well."""
    tally = Kept()
    summary = simulate(training(late="wait", measured=True), tally=tally).summary
    assert summary.nodes["seen"].taken > 0 < summary.nodes["some"].dropped["dull"]
    assert tally.draws == tally.all_ends
    assert max(tally.draws) < 1000


def test_a_source_on_a_thread_is_counted_too():
    tally = Kept()
    graph = Graph("threads")
    numbers = graph.source("numbers", range(20), placement=Threads())
    sink = graph.sink("sink", lambda value, context: None)
    numbers >> sink
    simulate(graph, tally=tally)
    assert tally.draws == tally.ends[None] == Counter(range(20))


def test_a_tally_that_fails_ends_the_run():
    class Broken(Kept):
        def ended(self, node, values, reason):
            raise LookupError("no such page")

    with pytest.raises(LookupError, match="no such page"):
        simulate(training(), tally=Broken())

"""A moment goes through bytes and comes out as it was, whatever the graph is made of, into fresh objects of the same graph."""

import asyncio
import random
from dataclasses import replace

import msgspec
import pytest
from core_look import plain
from killed_graphs import Ends

from flow import (
    Collect,
    Context,
    Cost,
    Drop,
    Failed,
    Freshness,
    Gathered,
    Graph,
    Items,
    Many,
    Retry,
    Run,
    Threads,
)  # fmt: skip
from flow._core.moment import Moment, capture, restore
from flow._core.state import State
from flow.saving import CannotResume
from flow.saving._image import Ports, blocks, read_moment
from flow.testing import run_virtual
from flow.testing._drawing import random_graph
from flow.testing._threads import PlayedExecutor


def moments_of(graph: Graph, times: list[float], seed: int = 0) -> tuple[Run, list[Moment]]:
    """Run a graph, and take its moment at these times."""
    taken: list[Moment] = []
    run = Run(graph.build(quiet=True), stall_s=None)
    run.threads = PlayedExecutor

    def take() -> None:
        in_hand = {crew.node.spec.name: crew.in_hand for crew in run._staff.crews if crew.in_hand is not None}
        taken.append(capture(run.state, in_hand))

    async def main() -> None:
        for at_s in times:
            asyncio.get_running_loop().call_later(at_s, take)
        await run.finish()

    run_virtual(main(), seed=seed, deadline_s=1e6)
    return run, taken


def again(run: Run, moment: Moment) -> Moment:
    """Bring a moment through bytes into a fresh state, and take the moment of that."""
    ports = Ports(run.plan.spec, {"some": Ends()})
    content = b"".join(blocks(moment, {"some": ports.state("some").encode("state")}, ports))
    read, states = read_moment(content, ports)
    assert ports.state("some").decode(states["some"]) == "state"
    fresh = State(run.plan)
    restore(fresh, read)
    assert fresh.faults() == []
    return capture(fresh, read.in_hand)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_moments_of_random_graphs_come_out_as_they_went_in(block):
    """P1, P2: lines, groups with retries, fans of every kind, sources on threads, costs, keys, orders, budgets."""
    seen, kinds = 0, set()
    for seed in range(block * 10, block * 10 + 10):
        drawn = random_graph(random.Random(seed), training=seed % 3 == 0)
        run, moments = moments_of(replace(drawn, tasks=6).graph(Ends().sinks), [0, 0.2, 0.7, 1.5, 3, 6, 12], seed)
        kinds |= {node.kind for node in run.plan.spec.nodes.values()}
        for moment in moments:
            assert plain(again(run, moment)) == plain(moment), f"seed {seed}"
            seen += sum(len(edge.items) for edge in moment.edges.values()) + len(moment.in_hand)
    assert seen > 100
    assert kinds >= {"source", "stage", "repeat", "group", "broadcast", "balance", "route", "merge", "sink"}


class Card(msgspec.Struct, frozen=True):
    """What a stage makes."""

    text: str
    rank: int


class Weighed:
    def add(self, value: Gathered[Card], context: Context) -> None: ...

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(2)
        return context.birth


class Numbers:
    """A source that counts."""

    def draw(self) -> int:
        return 3


async def play(number: int, context: Context) -> Card | Failed[Card] | Many[Card]:
    await asyncio.sleep(0.5 + (context.member or 0))
    if (context.birth + context.member) % 4 < 2:
        return Failed(Card("lost", 0), "unlucky")
    if (context.birth + context.member + context.retry) % 7 == 1:
        raise ValueError("dropped")
    return Card(f"{context.path}", number)


async def load(value: int, version: int) -> None:
    await asyncio.sleep(1)


def training(late: str = "wait") -> Graph:
    """Half groups, retries, half steps, versions, adaptive pools, budgets, tickets: whatever training has in a moment."""
    graph = Graph("training", pools={"servers": (1, 4), "seats": 3})
    cell = graph.latest("weights", int, load=load)
    source = graph.source("numbers", Numbers(), placement=Threads())
    members = graph.repeat("members", source, n=3)
    plays = graph.stage(
        "plays", play, workers=4, needs={"servers": 1}, reads=cell, on_error=Retry(1, then=Drop(500, 1000), backoff_s=1)
    )
    groups = graph.group("groups", plays, missing=Retry(1, then="shrink"), budget=(500, 1000))
    sink = graph.sink("steps", Weighed(), collect=Collect(2, steps=6))
    versions = graph.versions("versions", cell)
    seen = graph.sink("seen", lambda number, context: None)
    source >> members >> plays >> groups >> sink
    versions >> seen
    graph.edge(source, members, capacity=Items(4) | Cost(6, float))
    graph.feedback(sink, cell, initial=7, freshness=Freshness(1, late))
    return graph


@pytest.mark.parametrize("late", ["wait", "drop"])
def test_all_that_training_has_in_a_moment_comes_out_as_it_went_in(late):
    """P2, F3, G1: half groups, retries, failed members, tickets, cells, versions, pools, budgets, the hand of a source."""
    run, moments = moments_of(training(late), [0.3 * place for place in range(200)])
    for moment in moments:
        assert plain(again(run, moment)) == plain(moment)
    groups = [group for moment in moments for group in moment.groups["groups"].open.values()]
    assert any(group.failed for group in groups)
    assert any(group.member_retries for group in groups)
    assert any(group.values for group in groups)
    assert any(moment.in_hand for moment in moments)
    assert any(moment.tickets["steps"].trained for moment in moments)
    assert any(moment.sizes["servers"] > 1 for moment in moments)
    assert any(moment.budgets["groups"].count for moment in moments)
    assert any(moment.given["versions"] > 0 for moment in moments)
    assert {type(item.value) for moment in moments for item in moment.edges["plays->groups"].items} <= {Card}


def test_a_step_under_way_is_in_it_as_the_items_it_had_taken_one_attempt_older():
    """P2, P4."""
    run, moments = moments_of(training(), [0.3 * place for place in range(200)])
    with_two = next(m for m in moments if sum(item.attempt for item in m.edges["groups->steps"].items) == 2)
    for item in again(run, with_two).edges["groups->steps"].items[:2]:
        assert (item.attempt, item.leased, type(item.value)) == (1, False, Gathered)


def ports_of(graph: Graph) -> Ports:
    return Ports(graph.build(quiet=True).spec, {})


def moment_of(graph: Graph) -> Moment:
    return capture(State(graph.build(quiet=True)))


def test_a_moment_of_another_graph_or_of_damaged_bytes_is_refused():
    content = b"".join(blocks(moment_of(training()), {}, ports_of(training())))
    other = Graph("other")
    other.source("numbers", range(3)) >> other.sink("sink", lambda value, context: None)
    with pytest.raises(CannotResume, match="expected the moment of this graph, got another, or damaged bytes"):
        read_moment(content[:-1], ports_of(training()))
    with pytest.raises(CannotResume, match="expected the moment of this graph, got another, or damaged bytes"):
        read_moment(b"", ports_of(training()))
    _, moments = moments_of(training(), [3.0])
    content = b"".join(blocks(moments[0], {}, ports_of(training())))
    with pytest.raises(CannotResume, match=r"\(KeyError: 'numbers->members'\); resume with the graph that was saved, or from"):
        read_moment(content, ports_of(other))


def test_a_value_that_is_not_of_its_declared_type_is_refused_where_it_is_written():
    def gives(number: int, context: Context) -> Card:
        return Higher("text", 1, 2)

    class Higher(Card, frozen=True):
        more: int

    async def takes(card: Card, context: Context) -> None:
        await asyncio.sleep(1)

    graph = Graph("rl")
    numbers, made = graph.source("numbers", [1]), graph.stage("made", gives)
    numbers >> made >> graph.sink("sink", takes)
    _, moments = moments_of(graph, [0.5])
    found = [m for m in moments if m.edges["made->sink"].items]
    with pytest.raises(match=r"rl.made.out: expected exactly Card, to be saved; got Higher; declare the class"):
        b"".join(blocks(found[0], {}, ports_of(graph)))


def test_the_same_moment_makes_the_same_bytes():
    """Files of equal moments are equal, so that two commits can be compared."""
    first, second = (moments_of(training(), [3.3])[1][0] for _ in range(2))
    ports = ports_of(training())
    for moment in (first, second):
        for meter in moment.meters.values():
            meter.failures.clear()  # tracebacks
    assert b"".join(blocks(first, {}, ports)) == b"".join(blocks(second, {}, ports))

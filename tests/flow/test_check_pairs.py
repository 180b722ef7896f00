"""What ``build`` refuses of groups and tickets in graphs that branch: members report once, tickets come back once."""

import pytest
from declared import Train, TrainOnSingles, number, show, show_group

from flow import Collect, Context, Freshness, Gathered, Graph, Node


def keep_group(value: Gathered[int], context: Context) -> Gathered[int]:
    return value


def parity(value: int) -> int:
    return value % 2


def size(value: Gathered[int]) -> int:
    return len(value.members)


def members_of(graph: Graph, name: str = "a") -> Node[int, int]:
    source = graph.source(name, [1])
    members = graph.repeat(f"{name} members", source, n=2)
    return source >> members


def pair(graph: Graph, name: str = "a") -> Node[int, Gathered[int]]:
    members = members_of(graph, name)
    return members >> graph.group(f"{name} groups", members)


def fresh(graph: Graph, *sinks: Node[Gathered[int], str]) -> None:
    for sink in sinks:
        graph.feedback(sink, graph.latest(f"{sink.name} cell", str), initial="", freshness=Freshness(1))


def members_and_others_in_a_group() -> Graph:
    """A group takes members only."""
    graph = Graph("g")
    members, extra = members_of(graph), graph.source("extra", [2])
    joined = graph.merge("joined", [members, extra])
    _ = joined >> graph.group("groups", joined) >> graph.sink("sink", show_group)
    return graph


def two_repeats_in_a_group() -> Graph:
    """A group gathers for one repeat, which numbers its groups."""
    graph = Graph("g")
    joined = graph.merge("joined", [members_of(graph, "a"), members_of(graph, "b")])
    _ = joined >> graph.group("groups", joined) >> graph.sink("sink", show_group)
    return graph


def copies_in_a_group() -> Graph:
    """A member that reaches the group by two branches of a broadcast reports twice."""
    graph = Graph("g")
    members = members_of(graph)
    copies = graph.broadcast("copies", members)
    left, right = graph.stage("left", number), graph.stage("right", number)
    joined = graph.merge("joined", [left, right])
    _ = members >> copies >> left
    _ = copies >> right
    _ = joined >> graph.group("groups", joined) >> graph.sink("sink", show_group)
    return graph


def copies_gathered_again() -> Graph:
    """A side branch of a broadcast is in no group."""
    graph = Graph("g")
    members = members_of(graph)
    copies = graph.broadcast("copies", members)
    _ = members >> copies >> graph.group("groups", copies) >> graph.sink("sink", show_group)
    _ = copies >> graph.group("again", copies) >> graph.sink("second sink", show_group)
    return graph


def a_pair_on_a_side_branch() -> Graph:
    """Nor are copies repeated while the groups they were copied in are open."""
    graph = Graph("g")
    members = members_of(graph)
    copies = graph.broadcast("copies", members)
    again = graph.repeat("again", copies, n=3)
    _ = members >> copies >> graph.group("groups", copies) >> graph.sink("sink", show_group)
    _ = copies >> again >> graph.group("side groups", again) >> graph.sink("second sink", show_group)
    return graph


def members_in_two_groups() -> Graph:
    """Members of one group that are routed to two barriers fill neither."""
    graph = Graph("g")
    members = members_of(graph)
    even, odd = graph.group("even", members), graph.group("odd", members)
    kinds = graph.route("kinds", members, by=parity, to={0: even, 1: odd})
    _ = members >> kinds
    _ = even >> graph.sink("first", show_group)
    _ = odd >> graph.sink("second", show_group)
    return graph


def members_that_leave() -> Graph:
    """A member that is routed past its group never reports."""
    graph = Graph("g")
    members = members_of(graph)
    left, right, log = graph.stage("left", number), graph.stage("right", number), graph.sink("log", show)
    kinds = graph.route("kinds", members, by=parity, to={0: left, 1: right, 2: log})
    shares = graph.balance("shares", left)
    joined = graph.merge("joined", [shares, right])
    _ = members >> kinds
    _ = left >> shares >> graph.sink("spill", show)
    _ = joined >> graph.group("groups", joined) >> graph.sink("sink", show_group)
    return graph


def tickets_of_two_repeats() -> Graph:
    """F3: tickets are counted in one place."""
    graph = Graph("g")
    joined = graph.merge("joined", [pair(graph, "a"), pair(graph, "b")])
    sink = graph.sink("sink", Train(), collect=Collect(4))
    _ = joined >> sink
    fresh(graph, sink)
    return graph


def some_without_a_ticket() -> Graph:
    """F3: what holds no ticket has no age, so it may not reach a sink that bounds ages."""
    graph = Graph("g")
    with_ticket, extra = pair(graph, "a"), graph.source("extra", [Gathered(0, (1,), (), "full")])
    joined = graph.merge("joined", (with_ticket, extra))
    sink = graph.sink("sink", Train(), collect=Collect(4))
    _ = joined >> sink
    fresh(graph, sink)
    return graph


def tickets_that_are_copied() -> Graph:
    """F3: a ticket comes back once."""
    graph = Graph("g")
    groups = pair(graph)
    copies = graph.broadcast("copies", groups)
    left, right = graph.stage("left", keep_group), graph.stage("right", keep_group)
    joined = graph.merge("joined", [left, right])
    sink = graph.sink("sink", Train(), collect=Collect(4))
    _ = groups >> copies >> left
    _ = copies >> right
    _ = joined >> sink
    fresh(graph, sink)
    return graph


def tickets_that_leave() -> Graph:
    """F3: a ticket comes back."""
    graph = Graph("g")
    groups = pair(graph)
    sink, other = graph.sink("sink", Train(), collect=Collect(4)), graph.sink("other", show_group)
    _ = groups >> graph.route("sizes", groups, by=size, to={1: other, 2: sink})
    fresh(graph, sink)
    return graph


def tickets_for_two_sinks() -> Graph:
    """F3: one sink gives them back, and so one feedback edge bounds them."""
    graph = Graph("g")
    groups = pair(graph)
    copies = graph.broadcast("copies", groups)
    first, second = (graph.sink(name, Train(), collect=Collect(4)) for name in ("first", "second"))
    _ = groups >> copies >> first
    _ = copies >> second
    fresh(graph, first, second)
    return graph


def tickets_of_single_members() -> Graph:
    """F3: groups hold tickets, their members do not."""
    graph = Graph("g")
    members = members_of(graph)
    copies = graph.broadcast("copies", members)
    sink = graph.sink("sink", TrainOnSingles(), collect=Collect(4))
    _ = members >> copies >> graph.group("groups", copies) >> graph.sink("other", show_group)
    _ = copies >> sink
    graph.feedback(sink, graph.latest("cell", str), initial="", freshness=Freshness(1))
    return graph


def read_on_one_of_the_ways_to_the_ticket() -> Graph:
    """F3: every way to the repeat is looked at."""
    graph = Graph("g")
    cell = graph.latest("cell", str)
    a, b = graph.source("a", [1]), graph.source("b", [1])
    early = graph.stage("early", number, reads=cell)
    joined = graph.merge("joined", (a, early))
    members = graph.repeat("members", joined, n=2)
    sink = graph.sink("sink", Train(), collect=Collect(4))
    _ = b >> early
    _ = joined >> members >> graph.group("groups", members) >> sink
    graph.feedback(sink, cell, initial="", freshness=Freshness(1))
    return graph


FAULTY = [
    members_and_others_in_a_group, two_repeats_in_a_group, copies_in_a_group, copies_gathered_again, a_pair_on_a_side_branch,
    members_in_two_groups, members_that_leave, tickets_of_two_repeats, some_without_a_ticket, tickets_that_are_copied,
    tickets_that_leave, tickets_for_two_sinks, tickets_of_single_members, read_on_one_of_the_ways_to_the_ticket,
]  # fmt: skip


@pytest.mark.parametrize("make", FAULTY, ids=lambda make: make.__name__)
def test_the_text_of_a_refusal_is_the_golden_one(make, is_refused_as_written):
    is_refused_as_written(make)


def branching() -> Graph:
    """Everything a pair and its tickets may have between them, with a copy of members and one of groups led aside."""
    graph = Graph("g")
    cell = graph.latest("cell", str)
    members = members_of(graph)
    copies = graph.broadcast("copies", members)
    even, odd, late = (graph.stage(name, number, reads=cell) for name in ("even", "odd", "late"))
    kinds = graph.route("kinds", copies, by=parity, to={0: even, 1: odd})
    shares = graph.balance("shares", odd)
    joined = graph.merge("joined", [even, late, shares])
    groups = graph.group("groups", joined)
    aside = graph.broadcast("aside", groups)
    ways = graph.balance("ways", aside)
    left, right = graph.stage("left", keep_group), graph.stage("right", keep_group)
    last = graph.merge("last", [left, right])
    sink = graph.sink("sink", Train(), collect=Collect(4))
    _ = members >> copies >> kinds
    _ = copies >> graph.stage("side", number, workers=99) >> graph.sink("log", show)
    _ = odd >> shares >> late
    _ = joined >> groups >> aside >> ways >> left
    _ = aside >> graph.sink("archive", show_group)
    _ = ways >> right
    _ = last >> sink
    graph.feedback(sink, cell, initial="", freshness=Freshness(1))
    return graph


def test_a_pair_may_hold_every_kind_of_fan_and_copies_may_be_led_aside():
    """Side branches belong to no group and hold no ticket, so no number of tickets bounds their workers."""
    plan = branching().build()
    assert plan.warnings == ()
    assert plan.capacities["last->sink"].items == 2 * 4
    inside = ("a members", "copies", "kinds", "even", "odd", "shares", "late", "joined", "groups")
    assert plan.spec.path("groups") == inside
    assert plan.spec.path("sink") == (*inside, "aside", "ways", "left", "right", "last", "sink")
    assert plan.spec.opener("sink") == plan.spec.opener("groups") == "a members"


def test_groups_of_two_pairs_may_meet_where_no_ticket_is_held():
    graph = Graph("g")
    joined = graph.merge("joined", [pair(graph, "a"), pair(graph, "b")])
    _ = joined >> graph.sink("sink", show_group)
    spec = graph.build().spec
    assert (spec.opener("sink"), spec.path("sink")) == (None, ())
    assert spec.origins("sink") == ["a members", "b members"]
    assert spec.path("a groups") == ("a members", "a groups")
    assert spec.sinks_of("a") == spec.sinks_of("sink") == {"sink"}

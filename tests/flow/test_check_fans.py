"""What ``build`` refuses of graphs that branch and join, by shape and type. For groups and tickets see test_check_pairs."""

from typing import Literal

import pytest
from declared import number, show

from flow import Context, Emit, Graph, Retry, Threads


def text(value: str, context: Context) -> str:
    return value


def parity(value: int) -> Literal["even", "odd"]:
    return "odd" if value % 2 else "even"


def initial(value: str) -> str:
    return value[:1]


async def slowly(value: int) -> str:
    return "even"


def fans_of_one() -> Graph:
    """B1: a broadcast, a balance and a merge have two edges or more on their wide side."""
    graph = Graph("g")
    a = graph.source("a", [1])
    copies = graph.broadcast("copies", a)
    shares = graph.balance("shares", copies)
    joined = graph.merge("joined", [shares])
    _ = a >> copies >> shares
    _ = joined >> graph.sink("sink", show)
    return graph


def fans_of_none() -> Graph:
    """B1: with what to do about each."""
    graph = Graph("g")
    a = graph.source("a", [1])
    graph.route("sorted", a, by=parity, to={})
    joined = graph.merge("joined", [])
    _ = joined >> graph.sink("sink", show)
    return graph


def ends_in_the_middle() -> Graph:
    """B1: a source is fed, and a sink is read."""
    graph = Graph("g")
    a, b, sink = graph.source("a", [1]), graph.stage("b", number), graph.sink("sink", show)
    end = graph.sink("end", lambda value, context: None)
    _ = a >> sink >> end
    graph.edge(b, a)
    graph.edge(a, b)
    return graph


def wrong_names_of_branches() -> Graph:
    """B1: a branch without a key, a key without a branch, a weight without an input, a branch of another graph."""
    graph, other = Graph("g"), Graph("other")
    a = graph.source("a", [1])
    odd, stray = graph.stage("odd", number), graph.stage("stray", number)
    kinds = graph.route("kinds", a, by=parity, to={"odd": odd, "o": other.stage("od", number)})
    joined = graph.merge("joined", [odd, stray], weights={"od": 2, "kinds": 1})
    _ = a >> kinds >> stray
    _ = joined >> graph.sink("sink", show)
    return graph


def keys_that_do_not_fit() -> Graph:
    """B1 and B2: functions that give keys are called with one value of the right type, and give the key at once."""
    graph = Graph("g")
    a = graph.source("a", [1])
    even, odd, more = graph.sink("even", show), graph.stage("odd", number, key=initial), graph.stage("more", number)
    first = graph.route("first", a, by=parity, to={"even": even, "odd!": odd})
    second = graph.route("second", odd, by=slowly, to={"even": more})
    third = graph.route("third", more, by=number, to={1: graph.sink("end", show)})
    _ = a >> first
    _ = odd >> second
    _ = more >> third
    return graph


def types_of_branches() -> Graph:
    """B2: each branch takes what the fan-out takes, and what follows a merge takes what any input gives."""
    graph = Graph("g")
    a = graph.source("a", [1])
    copies = graph.broadcast("copies", a)
    words, numbers = graph.stage("words", text), graph.stage("numbers", number)
    joined = graph.merge("joined", (words, numbers))
    _ = a >> copies >> words
    _ = copies >> numbers
    _ = joined >> graph.sink("sink", show)
    return graph


def cycles() -> Graph:
    """B4: two that share nodes, each told once, and one that no source leads to."""
    graph = Graph("g")
    a = graph.source("a", [1])
    left, right = graph.stage("left", number), graph.stage("right", number)
    joined = graph.merge("joined", [a, left, right])
    copies = graph.broadcast("copies", joined)
    _ = joined >> copies >> left
    _ = copies >> right
    _ = copies >> graph.sink("sink", show)
    alone = graph.stage("alone", number)
    _ = alone >> alone
    return graph


def wrong_numbers_of_fans() -> Graph:
    """B3, B5, S2: weights, patience, rates, pools that shrink, and settings where they have no effect."""
    graph = Graph("g", pools={"engine": (4, 2), "shared": 1}, rates={"search": 0, "shared": 2})
    a = graph.source("a", [1])
    b = graph.stage("b", number, key=parity, order="input", needs={"search": 0, "serch": 1})
    copies = graph.broadcast("copies", b)
    c = graph.stage("c", number)
    joined = graph.merge("joined", (copies, c), weights={"c": 0}, patience=0)
    end = graph.sink("end", show)
    kinds = graph.route("kinds", joined, by=parity, to={"odd": end, "even": end})
    _ = a >> b >> copies >> c
    _ = joined >> kinds
    graph = graph.with_("copies", placement=Threads()).with_("a", order="input")
    return graph.with_("kinds", on_error=Retry(1, then=Emit(lambda value, failure, context: 0)))


FAULTY = [
    fans_of_one, fans_of_none, ends_in_the_middle, wrong_names_of_branches, keys_that_do_not_fit, types_of_branches, cycles,
    wrong_numbers_of_fans,
]  # fmt: skip


@pytest.mark.parametrize("make", FAULTY, ids=lambda make: make.__name__)
def test_the_text_of_a_refusal_is_the_golden_one(make, is_refused_as_written):
    is_refused_as_written(make)


def test_a_graph_that_branches_and_joins_is_built():
    """B1 to B5: two keys may lead to one node, and a node may be connected again by an arrow."""
    graph = Graph("g", pools={"engine": (1, 4)}, rates={"search": 0.5})
    a = graph.source("a", [1])
    odd = graph.stage("odd", number, needs={"engine": 1, "search": 1})
    rest = graph.stage("rest", number, key=parity)
    kinds = graph.route("kinds", a, by=lambda value: value % 3, to={0: rest, 1: odd, 2: rest})
    joined = graph.merge("joined", [odd, rest], weights={"odd": 3})
    _ = a >> kinds >> odd >> joined
    copies = graph.broadcast("copies", joined)
    shares = graph.balance("shares", copies)
    _ = joined >> copies >> shares >> graph.sink("first", show)
    _ = copies >> graph.sink("log", show)
    _ = shares >> graph.sink("second", show)
    spec = graph.build().spec
    assert [edge.name for edge in spec.outputs("kinds")] == ["kinds->rest", "kinds->odd"]
    assert [edge.name for edge in spec.inputs("joined")] == ["odd->joined", "rest->joined"]
    assert spec.nodes["kinds"].branches == {0: "rest", 1: "odd", 2: "rest"}
    assert (spec.nodes["joined"].weights, spec.nodes["joined"].patience) == ({"odd": 3, "rest": 1}, 8)


@pytest.mark.slow
def test_a_cycle_is_found_behind_a_long_line_without_recursion(refusal):
    """B4: a line of any length is walked."""
    graph = Graph("g")
    first = at = graph.stage("0", number)
    for index in range(1, 1100):
        at = at >> graph.stage(str(index), number)
    _ = at >> first
    (fault,) = [fault for fault in refusal(graph).faults if fault.rule == "B4"]
    assert fault.got.startswith("0 >> 1 >> 2 >> ")
    assert fault.got.endswith(" >> 1099 >> 0")

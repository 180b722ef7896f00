"""What ``build`` refuses, with the text a user sees: expected, got, where, what to do. The texts are golden files."""

from collections.abc import Callable

import pytest
from declared import Train, TrainOnSingles, number, show, show_group

from flow import Collect, Context, Cost, Drop, Emit, Freshness, Graph, Items, Retry, Shrink


def text(value: str, context: Context) -> str:
    return value


def misspelt_and_unconnected() -> Graph:
    graph, other = Graph("g"), Graph("other")
    a, b = graph.source("numbers", [1]), graph.stage("b", number)
    graph.sink("c", show)
    graph.source("numbers", [2])
    _ = a >> b >> other.sink("nowhere", show)
    _ = graph.edge(other.source("number", [1]), b)
    return graph


def empty() -> Graph:
    return Graph("g")


def two_readers() -> Graph:
    graph = Graph("g")
    a, b, c = graph.source("a", [1]), graph.sink("b", show), graph.sink("c", show)
    _ = a >> b
    _ = a >> c
    return graph


def a_cycle() -> Graph:
    graph = Graph("g")
    a, b = graph.stage("a", number), graph.stage("b", number)
    _ = a >> b >> a
    return graph


def wrong_types() -> Graph:
    graph = Graph("g")
    a, b, c = graph.source("a", [1]), graph.stage("b", text), graph.sink("c", show)
    _ = a >> b >> c
    return graph


def a_group_is_missing() -> Graph:
    graph = Graph("g")
    a = graph.source("a", [1])
    b, c = graph.stage("b", number), graph.sink("c", show_group)
    _ = a >> b >> c
    return graph


def half_pairs() -> Graph:
    graph = Graph("g")
    a = graph.source("a", [1])
    b = graph.group("b", a)
    c = graph.sink("c", show_group)
    _ = a >> b >> c
    d = graph.source("d", [1])
    e = graph.repeat("e", d, n=2)
    f = graph.sink("f", show)
    _ = d >> e >> f
    return graph


def nested_groups() -> Graph:
    graph = Graph("g")
    a = graph.source("a", [1])
    outer = graph.repeat("outer", a, n=2)
    inner = graph.repeat("inner", outer, n=3)
    gather = graph.group("gather", inner)
    again = graph.group("again", gather)
    sink = graph.sink("sink", lambda value, context: None)
    _ = a >> outer >> inner >> gather >> again >> sink
    return graph


def feedback(
    *, kind: type = str, initial: object = "", freshness: Freshness | None = None, pair: bool = True, collect: bool = True
) -> Graph:
    graph = Graph("g")
    cell = graph.latest("weights", kind)
    a = graph.source("a", [1])
    b = graph.stage("b", number, reads=cell)
    if pair:
        members = graph.repeat("members", a, n=2)
        groups = graph.group("groups", b)
        sink = graph.sink("sink", Train(), collect=Collect(4)) if collect else graph.sink("sink", show_group)
        _ = a >> members >> b >> groups >> sink
    else:
        sink = graph.sink("sink", Train(), collect=Collect(4))
        _ = a >> b >> sink
    graph.feedback(sink, cell, initial=initial, freshness=freshness)
    return graph


def wrong_feedback() -> Graph:
    return feedback(kind=bytes, initial=3)


def no_initial_value() -> Graph:
    return feedback(initial=None)


def feedback_of_a_plain_sink() -> Graph:
    return feedback(kind=type(None), initial=None, collect=False)


def cell_without_a_writer() -> Graph:
    graph, other = Graph("g"), Graph("other")
    cell, foreign = graph.latest("weights", str), other.latest("elsewhere", str)
    a, b, c = graph.source("a", [1]), graph.stage("b", number, reads=cell), graph.sink("c", show)
    _ = a >> b >> c
    d, e, f = graph.source("d", [1]), graph.stage("e", number, reads=foreign), graph.sink("f", show)
    _ = d >> e >> f
    return graph


def two_writers() -> Graph:
    graph = Graph("g")
    cell = graph.latest("weights", str)
    for name in ("a", "b"):
        source = graph.source(name, [1])
        members = graph.repeat(f"{name}s", source, n=1)
        groups = graph.group(f"{name} groups", members)
        sink = graph.sink(f"{name} sink", Train(), collect=Collect(1))
        _ = source >> members >> groups >> sink
        graph.feedback(sink, cell, initial="")
    return graph


def two_cells_of_one_name() -> Graph:
    graph = Graph("g")
    a, b = graph.source("a", [1]), graph.sink("b", show)
    _ = a >> b
    graph.latest("weights", str)
    graph.latest("weights", bytes)
    return graph


def foreign_feedback() -> Graph:
    graph, other = Graph("g"), Graph("other")
    a, b = graph.source("a", [1]), graph.sink("b", show)
    _ = a >> b
    graph.feedback(other.sink("trainer", Train(), collect=Collect(1)), other.latest("weights", str), initial="")
    return graph


def freshness_without_groups() -> Graph:
    return feedback(pair=False, freshness=Freshness(1)).replace("sink", TrainOnSingles())


def read_before_the_ticket() -> Graph:
    graph = Graph("g")
    cell = graph.latest("weights", str)
    a = graph.source("a", [1])
    first = graph.stage("first", number, reads=cell)
    members = graph.repeat("members", first, n=2)
    groups = graph.group("groups", members)
    sink = graph.sink("sink", Train(), collect=Collect(4))
    _ = a >> first >> members >> groups >> sink
    graph.feedback(sink, cell, initial="", freshness=Freshness(1))
    return graph


def wrong_numbers() -> Graph:
    graph = Graph("g", pools={"sandbox": 0})
    a = graph.source("a", [1])
    members = graph.repeat("members", a, n=0)
    b = graph.stage("b", number, workers=0, deadline_s=0, needs={"sandbox": 2, "engine": 1}, on_error=Drop(most=-1, of=0))
    c = graph.group("c", b, missing=Shrink(-1), budget=(-1, 0))
    d = graph.sink("d", Train(), collect=Collect(0, steps=0))
    _ = a >> members >> b >> c >> d
    graph.edge(c, d, capacity=Items(0))
    graph.feedback(d, graph.latest("w", str), freshness=Freshness(-1))
    return graph.with_("c", workers=2)


def wrong_policies() -> Graph:
    graph = Graph("g")
    a = graph.source("a", [1])
    members = graph.repeat("members", a, n=2)
    b = graph.stage("b", number, on_error=Retry(1, then="drop"))
    c = graph.group("c", b, missing=Retry(1))
    d = graph.sink("d", show_group, on_error=Retry(-1, then=Emit(lambda value, failure, context: None, of=0)))
    _ = a >> members >> b >> c >> d
    return graph


def infeasible() -> Graph:
    """B5: the numbers are in the message."""
    graph = Graph("g")
    cell = graph.latest("weights", str)
    a = graph.source("a", [1])
    members = graph.repeat("members", a, n=8)
    b = graph.stage("b", number, reads=cell)
    groups = graph.group("groups", b, missing=Shrink(9))
    sink = graph.sink("sink", Train(), collect=Collect(4))
    _ = a >> members >> b >> groups >> sink
    graph.edge(members, b, capacity=Items(7))
    graph.edge(groups, sink, capacity=Items(7))
    graph.feedback(sink, cell, initial="", freshness=Freshness(2))
    return graph


def nothing_fits() -> Graph:
    """B5: each number is right by itself, together they are not; all of it is told at once."""
    graph = Graph("g", pools={"sandbox": 3, "engine": (1, 8)})
    cell = graph.latest("weights", str)
    a = graph.source("a", [1])
    members = graph.repeat("members", a, n=8)
    b = graph.stage("b", number, reads=cell, workers=64, needs={"sandbox": 4, "engine": 2})
    groups = graph.group("groups", b)
    sink = graph.sink("sink", Train(), collect=Collect(4))
    _ = a >> members >> b >> groups >> sink
    graph.edge(members, b, capacity=Items(4))
    graph.edge(groups, sink, capacity=Items(6))
    graph.feedback(sink, cell, initial="", freshness=Freshness(2))
    return graph


FAULTY: list[Callable[[], Graph]] = [
    misspelt_and_unconnected, empty, two_readers, a_cycle, wrong_types, a_group_is_missing, half_pairs, nested_groups,
    wrong_feedback, no_initial_value, feedback_of_a_plain_sink, cell_without_a_writer, two_writers, two_cells_of_one_name,
    foreign_feedback, freshness_without_groups, read_before_the_ticket, wrong_numbers, wrong_policies, infeasible, nothing_fits,
]  # fmt: skip


@pytest.mark.parametrize("make", FAULTY, ids=lambda make: make.__name__)
def test_the_text_of_a_refusal_is_the_golden_one(make, is_refused_as_written):
    is_refused_as_written(make)


def test_all_faults_are_told_at_once_the_root_causes_first(refusal):
    graph = wrong_types()
    graph.stage("alone", number, workers=0)
    rules = [(fault.rule, fault.path) for fault in refusal(graph).faults]
    assert rules == [
        ("B1", "g.alone.in"), ("B1", "g.alone.out"), ("B2", "g.a->b"), ("B2", "g.b->c"), ("B5", "g.alone.workers"),
    ]  # fmt: skip


def test_a_fault_names_the_users_own_line(refusal):
    graph = Graph("g")
    here = here_plus_one()
    graph.stage("alone", number)
    assert refusal(graph).faults[0].where == here


def here_plus_one() -> str:
    import inspect

    frame = inspect.stack()[1]
    return f"test_check.py:{frame.lineno + 1}"


def test_an_edge_is_durable_behind_a_stage_only(refusal):
    """B7: only what a stage makes need not be made again."""
    graph = Graph("g")
    a, b, c = graph.source("a", [1]), graph.stage("b", number), graph.sink("c", show)
    _ = a >> b >> c
    graph.edge(b, c, durable=True)
    assert graph.build(quiet=True).spec.outputs("b")[0].durable
    graph.edge(a, b, durable=True)
    graph.edge(b, c, durable="always")  # type: ignore[arg-type]
    assert [(fault.rule, fault.path, fault.expected, fault.got) for fault in refusal(graph).faults] == [
        ("B5", "g.b->c.durable", "True or False", "'always'"),
        ("B7", "g.a->b.durable", "a stage before a durable edge, whose work is not done again", "the source 'a'"),
    ]


def test_what_is_said_of_an_edge_stays_until_something_else_is_said():
    graph = Graph("g")
    a, b, c = graph.source("a", [1]), graph.stage("b", number), graph.sink("c", show)
    _ = a >> b
    graph.edge(b, c, durable=True)
    _ = b >> c
    graph.edge(b, c, capacity=Items(3))
    (edge,) = graph.spec().outputs("b")
    assert (edge.durable, edge.capacity) == (True, Items(3))
    graph.edge(b, c, durable=False)
    (edge,) = graph.spec().outputs("b")
    assert (edge.durable, edge.capacity) == (False, Items(3))


def test_a_graph_without_a_fault_is_built():
    plan = feedback(freshness=Freshness(1)).build()
    assert plan.warnings == ()
    assert plan.spec.opener("sink") == "members"


def test_a_cost_before_a_sink_with_freshness_is_refused(refusal):
    """B5, C5, F4: the group that must go next could wait for ever for lighter ones to leave, which wait for it."""
    graph = Graph("costly")
    cell = graph.latest("w", str)
    tasks = graph.source("tasks", [1, 2])
    members = graph.repeat("members", tasks, n=2)
    groups = graph.group("groups", members)
    train = graph.sink("train", Train(), collect=Collect(1))
    _ = tasks >> members >> groups >> train
    graph.edge(groups, train, capacity=Items(4) | Cost(10, lambda group: 1.0))
    graph.feedback(train, cell, initial="first", freshness=Freshness(1))
    assert "a bound in items only, before a sink that chooses by age" in str(refusal(graph))

"""Changing graphs that branch and join, and taking nodes out. Settings and stages on a line are in test_graph."""

import pytest

from flow import Context, Cost, Drop, Fail, Graph, Items


def number(value: int, context: Context) -> int:
    return value


def text(value: int, context: Context) -> str:
    return str(value)


def show(value: int, context: Context) -> None:
    """Shows nothing."""


def routed() -> Graph:
    graph = Graph("g", rates={"search": 1})
    a = graph.source("a", [1])
    left, right, spare = (graph.stage(name, number) for name in ("left", "right", "spare"))
    kinds = graph.route("kinds", a, by=bool, to={False: left, True: right})
    joined = graph.merge("joined", [left, right, spare], weights={"right": 2})
    _ = a >> kinds
    _ = graph.source("b", [1]) >> spare
    _ = joined >> graph.sink("end", show)
    graph.edge(kinds, right, capacity=Items(7))
    return graph


def names(graph: Graph) -> list[str]:
    return [edge.name for edge in graph.spec().edges]


def test_branches_of_a_route_change_with_their_edges():
    """A branch that stays keeps its bound; the first graph is left alone."""
    graph = routed()
    assert graph.build().capacities["kinds->right"] == Items(7)
    other = graph.without("spare").with_("kinds", to={True: "right", False: "joined"}, by=lambda value: value > 3)
    assert names(other) == [
        "kinds->right",
        "left->joined",
        "right->joined",
        "b->joined",
        "a->kinds",
        "joined->end",
        "kinds->joined",
    ]
    spec = other.spec()
    assert spec.nodes["kinds"].branches == {True: "right", False: "joined"}
    assert next(edge.capacity for edge in spec.outputs("kinds")) == Items(7)
    assert "kinds->left" in names(graph)


def test_handles_are_branches_too():
    graph = Graph("g")
    a = graph.source("a", [1])
    first, second = graph.sink("first", show), graph.sink("second", show)
    _ = a >> graph.route("kinds", a, by=bool, to={True: first, False: first})
    nodes = graph.with_("kinds", to={True: first, False: second}, on_error=Drop()).build().spec.nodes
    assert (nodes["kinds"].branches, nodes["kinds"].on_error) == ({True: "first", False: "second"}, Drop())
    assert graph.spec().nodes["kinds"].on_error == Fail()


def test_weights_and_patience_change():
    """C7: an input that is not named has weight 1."""
    graph = routed().with_("joined", weights={"spare": 3}, patience=2)
    joined = graph.build().spec.nodes["joined"]
    assert (joined.weights, joined.patience) == ({"left": 1, "right": 1, "spare": 3}, 2)
    assert graph.with_("joined", weights=None).build().spec.nodes["joined"].weights == {"left": 1, "right": 1, "spare": 1}


def test_a_changed_graph_keeps_its_rates_and_where_it_was_declared():
    graph = routed()
    other = graph.with_("left", needs={"search": 1}).build().spec
    assert (other.rates, other.where) == ({"search": 1}, graph.spec().where)
    assert other.where.startswith("test_change.py:")


def test_a_fan_holds_no_stage_to_replace():
    with pytest.raises(ValueError, match=r"expected a node with a stage, got the merge g\.joined"):
        routed().replace("joined", number)


def test_a_new_type_goes_through_the_fans():
    """B2."""
    graph = Graph("g")
    a, b = graph.source("a", [1]), graph.source("b", [2])
    joined = graph.merge("joined", [a, b])
    copies, shares = graph.broadcast("copies", joined), graph.balance("shares", joined)
    ways = graph.route("ways", copies, by=str, to={"1": graph.sink("end", show)})
    _ = joined >> copies >> shares
    _ = copies >> ways
    nodes = graph.replace("b", ["x"]).spec().nodes
    assert {nodes[name].gives for name in ("joined", "copies", "shares", "ways")} == {int | str}


def test_a_stage_taken_out_leaves_its_neighbours_joined():
    """The new edge carries what came in, so it has the bound from before; its merge numbers it as it did the old one."""
    graph = routed()
    graph = graph.without("right")
    assert names(graph) == [
        "kinds->left",
        "left->joined",
        "kinds->joined",
        "spare->joined",
        "a->kinds",
        "b->spare",
        "joined->end",
    ]
    plan = graph.build()
    assert plan.capacities["kinds->joined"] == Items(7)
    assert plan.spec.nodes["kinds"].branches == {False: "left", True: "joined"}
    assert plan.spec.nodes["joined"].weights == {"left": 1, "kinds": 2, "spare": 1}
    assert "right" not in plan.spec.nodes


def test_build_tells_where_the_neighbours_of_what_was_taken_out_do_not_fit():
    """B2."""
    graph = Graph("g")
    words = graph.stage("words", text)
    _ = graph.source("a", [1]) >> words >> graph.sink("end", lambda value, context: None)
    graph = graph.replace("end", length)
    assert graph.build().spec.nodes["end"].takes is str
    with pytest.raises(ValueError, match="str, which 'end' takes"):
        graph.without("words").build()


def length(value: str, context: Context) -> None:
    """Counts nothing."""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("joined", r"expected a node with one input and one output, got the merge g\.joined with 3 and 1 \(test_change"),
        ("a", r"got the source g\.a with 0 and 1"),
        ("end", r"got the sink g\.end with 1 and 0"),
    ],
)
def test_only_nodes_on_a_line_are_taken_out(name, message):
    with pytest.raises(ValueError, match=message):
        routed().without(name)


def test_neighbours_that_are_connected_already_are_not_connected_twice():
    graph = Graph("g")
    a = graph.source("a", [1])
    copies, stage = graph.broadcast("copies", a), graph.stage("stage", number)
    joined = graph.merge("joined", (copies, stage))
    _ = a >> copies >> stage
    _ = joined >> graph.sink("end", show)
    graph.edge(copies, joined, capacity=Cost(3, float))
    with pytest.raises(ValueError, match=r"neighbours that are not connected, got the edge g\.copies->joined \(test_change"):
        graph.without("stage")
    with pytest.raises(KeyError, match="no node 'stag'"):
        graph.without("stag")

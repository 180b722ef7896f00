"""Settings of a type that they cannot have are told with all other faults, before anything compares them (B5)."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from declared import number

from flow import Collect, Context, Cost, Drop, Emit, Freshness, Graph, Items, Retry, Shrink, Threads


class Steps:
    def add(self, value: Any, context: Context) -> None: ...

    def finish(self, context: Context) -> str:
        return ""


def line(**settings: Any) -> Graph:
    graph = Graph("g")
    _ = graph.source("a", [1]) >> graph.stage("b", number, **settings) >> graph.sink("c", lambda value, context: None)
    return graph


def wrong_kinds() -> Graph:
    """Every setting that was seen to be mistaken for another, in one graph, beside a fault that must not be hidden."""
    graph = Graph("g", pools={"gpu": "2"}, rates={"api": None})  # type: ignore[dict-item]
    a = graph.source("a", [1], placement=Threads)  # type: ignore[arg-type]
    b = graph.stage("b", number, placement="threads", on_error=None, budget=(100, 50), workers=0)  # type: ignore[arg-type]
    c = graph.stage("c", number, on_error="drop", order="inputs", deadline_s="3", needs=5, reads=7)  # type: ignore[arg-type]
    members = graph.repeat("members", c, n=2.0)  # type: ignore[arg-type]
    lost = graph.group("lost", members, missing=Drop())  # type: ignore[arg-type]
    again = graph.repeat("again", lost, n=2)
    shrunk = graph.group("shrunk", again, missing="shrink", budget="none")  # type: ignore[arg-type]
    d = graph.sink("d", Steps(), collect=5)  # type: ignore[call-overload]
    _ = a >> b >> c >> members >> lost >> again >> shrunk >> d
    graph.edge(a, b, capacity=5)  # type: ignore[arg-type]
    return graph.with_("c", workers="3")


def wrong_kinds_inside() -> Graph:
    """What is wrong inside a setting is told with its whole path."""
    graph = Graph("g")
    weights = graph.latest("weights", str)
    a = graph.source("a", [1])
    b = graph.stage("b", number, on_error=Retry("2", then=Drop(most="x"), on=[OSError]))  # type: ignore[arg-type]
    c = graph.stage("c", number, on_error=Emit(None, of=None))  # type: ignore[arg-type]
    d = graph.sink("d", Steps(), collect=Collect("8", end="train"))  # type: ignore[arg-type]
    _ = a >> b >> c >> d
    graph.edge(a, b, capacity=Items("5"))  # type: ignore[arg-type]
    graph.edge(b, c, capacity=Cost(5, "tokens"))  # type: ignore[arg-type]
    graph.feedback(d, weights, initial="", freshness=Freshness("1", late="never"))  # type: ignore[arg-type]
    return graph


@pytest.mark.parametrize("make", [wrong_kinds, wrong_kinds_inside], ids=lambda make: make.__name__)
def test_the_text_of_a_refusal_is_the_golden_one(make: Callable[[], Graph], is_refused_as_written):
    is_refused_as_written(make)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"placement": "threads"}, "pass Threads()"),
        ({"placement": Threads}, "pass an object: Threads()"),
        ({"on_error": "drop"}, "pass Drop()"),
        ({"on_error": Retry}, "pass an object: Retry(...)"),
        ({"budget": (100, 50)}, "turn them round: (50, 100); budget=None, or most as many as of, is no limit"),
        ({"workers": True}, "pass a whole number"),
        ({"deadline_s": float("nan")}, "pass seconds as a number, or None"),
        ({"on_error": Drop(most=6, of=5)}, "turn them round: (5, 6); budget=None, or most as many as of, is no limit"),
    ],
)
def test_a_setting_of_a_wrong_kind_is_one_fault_with_what_to_do(settings: dict[str, Any], remedy: str, refusal):
    (fault,) = refusal(line(**settings)).faults
    assert (fault.rule, fault.remedy) == ("B5", remedy)
    assert fault.path.startswith(f"g.b.{next(iter(settings))}")


def test_a_graph_with_a_setting_of_a_wrong_kind_can_be_drawn():
    """What is drawn there is what would hold if the setting were not given."""
    assert wrong_kinds().draw()
    assert line(workers="3", placement="threads", needs=5).draw() == line().draw()


def test_settings_of_the_right_kinds_pass():
    graph = line(workers=2, on_error=Retry(1, then=Drop(most=5, of=5), on=(OSError,)), budget=None, deadline_s=1, reads=None)
    assert graph.build().spec.nodes["b"].on_error == Retry(1, then=Drop(most=5, of=5), on=(OSError,))


@pytest.mark.parametrize(
    "connect",
    [
        lambda graph, a: a >> "b",
        lambda graph, a: graph.edge("b", a),
        lambda graph, a: graph.group("b", "a"),
        lambda graph, a: graph.merge("b", ["a"]),
        lambda graph, a: graph.route("b", a, by=bool, to={True: "c"}),
        lambda graph, a: graph.feedback("a", graph.latest("b", int)),
    ],
)
def test_a_name_in_place_of_a_handle_is_an_error_at_its_line(connect: Callable[[Graph, Any], Any]):
    graph = Graph("g")
    wanted = "expected a node, as graph.stage(...) gives it, got the str '"
    with pytest.raises(TypeError, match=re.escape(wanted)):
        connect(graph, graph.source("a", [1]))


def test_branches_without_keys_are_an_error_at_their_line():
    graph = Graph("g")
    a, b = graph.source("a", [1]), graph.sink("b", lambda value, context: None)
    wanted = re.escape("pass to={key: node}")
    with pytest.raises(TypeError, match=wanted):
        graph.route("routed", a, by=bool, to=[b])  # type: ignore[arg-type]
    graph.route("routed", a, by=bool, to={True: b})
    with pytest.raises(TypeError, match=wanted):
        graph.with_("routed", to=b)


def test_pools_and_rates_without_names_and_a_route_without_a_key_are_faults(refusal):
    graph = Graph("g", pools=5, rates="fast")  # type: ignore[arg-type]
    a = graph.source("a", [1])
    _ = a >> graph.route("routed", a, by=None, to={1: graph.sink("b", lambda value, context: None)})  # type: ignore[arg-type]
    assert [(fault.rule, fault.path, fault.got) for fault in refusal(graph).faults] == [
        ("B1", "g.routed.by", "None"),
        ("B5", "g.pools", "5"),
        ("B5", "g.rates", "'fast'"),
    ]


def test_a_wrong_number_inside_of_what_a_group_does_is_told_with_its_path(refusal):
    graph = Graph("g")
    a = graph.source("a", [1])
    members = graph.repeat("members", a, n=2)
    groups = graph.group("groups", members, missing=Shrink("2"))  # type: ignore[arg-type]
    _ = a >> members >> groups >> graph.sink("b", lambda value, context: None)
    assert [(fault.path, fault.got) for fault in refusal(graph).faults] == [("g.groups.missing.min_members", "'2'")]

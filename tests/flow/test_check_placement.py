"""What may run in processes: stages that pickle, with inputs and outputs that msgspec knows."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from declared import number, show

from flow import Collect, Context, Failed, Filtered, Gathered, Graph, Many, Processes


class Record(msgspec.Struct, frozen=True):
    text: str
    scores: tuple[float, ...] = ()
    more: dict[str, Any] = {}


class Opaque:
    pass


@dataclass(frozen=True)
class Holder:
    part: list[Opaque]


@dataclass(frozen=True)
class Tree:
    left: "Tree | None"
    value: int


def grade(value: Gathered[Record], context: Context) -> Many[Record] | Failed[Record] | Filtered:
    return Many(value.members)


def climb(value: Tree, context: Context) -> Gathered[Tree]:
    return Gathered(0, (value,), (), "full")


def untyped(value, context):
    return value


def opaque(value: Opaque, context: Context) -> Holder:
    return Holder([value])


def ambiguous(value: Record | Holder, context: Context) -> int:
    return 0


class Stateful:
    def __init__(self, held: object) -> None:
        self.held = held

    def __call__(self, value: int, context: Context) -> int:
        return value


class Socket:
    def __reduce__(self) -> str:
        raise TypeError("a socket stays where it is")


class Train:
    def add(self, value: int, context: Context) -> None:
        """Takes all."""

    def finish(self, context: Context) -> str:
        return ""


def graph_of(work: Any, source: Any = (1,)) -> Graph:
    graph = Graph("g")
    _ = graph.source("a", source) >> graph.stage("b", work, placement=Processes()) >> graph.sink("c", lambda v, c: None)
    return graph


def what_stays_here() -> Graph:
    """B5: state of the graph itself cannot leave the process."""
    graph = Graph("g")
    a = graph.source("a", [1], placement=Processes())
    members = graph.repeat("members", a, n=2)
    sink = graph.sink("sink", Train(), collect=Collect(1), placement=Processes())
    _ = a >> members >> graph.group("groups", members) >> graph.stage("first", lambda v, c: v.members[0]) >> sink
    return graph.with_("members", placement=Processes()).with_("groups", placement=Processes())


def what_does_not_cross() -> Graph:
    """B7: what pickle says of the stage, and what msgspec says of its ports."""
    graph = Graph("g")
    a = graph.source("a", iter([1]))
    c = graph.stage("c", Stateful(Socket()), placement=Processes())
    d = graph.stage("d", untyped, placement=Processes())
    e = graph.stage("e", opaque, placement=Processes())
    f = graph.stage("f", untyped)
    _ = a >> c >> d >> e >> f >> graph.sink("sink", show, placement=Processes())
    return graph


@pytest.mark.parametrize("make", [what_stays_here, what_does_not_cross], ids=lambda make: make.__name__)
def test_the_text_of_a_refusal_is_the_golden_one(make, is_refused_as_written):
    is_refused_as_written(make)


def test_functions_inside_functions_and_lambdas_do_not_cross(refusal):
    """B7: pickle's own words are told, which differ from one Python to the next."""

    def inner(value: int, context: Context) -> int:
        return value

    first, second = refusal(graph_of(inner)), refusal(graph_of(Stateful(lambda: 0)))
    assert [(fault.rule, fault.path) for error in (first, second) for fault in error.faults] == [("B7", "g.b")] * 2
    assert "inner" in first.faults[0].got
    assert "<lambda>" in second.faults[0].got


def test_a_union_that_msgspec_cannot_tell_apart_does_not_cross(refusal):
    """B7: msgspec's own words are told."""
    (fault,) = refusal(graph_of(ambiguous, iter([]))).faults
    assert (fault.rule, fault.path) == ("B7", "g.b.in")
    assert fault.got.startswith("'b' takes Record | Holder: Type unions may not contain more than one")


@pytest.mark.parametrize("work", [number, grade, climb, Stateful(3)], ids=lambda work: getattr(work, "__name__", "object"))
def test_plain_stages_with_typed_ports_cross(work):
    """B7: also groups, types that hold themselves, and what wraps an output."""
    assert graph_of(work, iter([])).build().spec.nodes["b"].placement == Processes()


def test_what_a_sink_gives_does_not_cross():
    """B7: its result goes nowhere."""
    graph = Graph("g")
    _ = graph.source("a", [1]) >> graph.sink("b", show_untyped, placement=Processes())
    assert graph.build().warnings == ()


def show_untyped(value: int, context: Context):
    """Shows nothing."""

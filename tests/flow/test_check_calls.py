"""Code that cannot be called the way the engine calls it is refused before anything runs."""

import contextlib
import functools

import pytest

from flow import BuildError, Collect, Context, Graph, Threads


def keep(value: int, context: Context) -> int:
    return value


class Steps:
    def add(self, value: int, context: Context) -> None: ...

    def finish(self, context: Context) -> str:
        return ""


def faults(*, source=(1,), stage=keep, sink=None, load=None) -> list[tuple[str, str, str]]:
    graph = Graph("g")
    collector = graph.sink("sink", sink or Steps(), collect=Collect(1))
    _ = graph.source("source", source) >> graph.stage("stage", stage) >> collector
    graph.feedback(collector, graph.latest("weights", str, load=load), initial="")
    with contextlib.suppress(BuildError):
        graph.build()
        return []
    with pytest.raises(BuildError) as caught:
        graph.build()
    found = caught.value.faults
    assert all(fault.rule == "B1" and fault.where.startswith("test_check_calls.py:") for fault in found)
    return [(fault.path, fault.expected, fault.got) for fault in found]


def of_one(value: int) -> int:
    return value


def of_three(value: int, context: Context, more: int) -> int:
    return value


def by_keyword(value: int, context: Context, *, more: int) -> int:
    return value


def turned(context: Context, value: int) -> int:
    return value


async def streams(value: int, context: Context):
    yield value


def yields(value: int, context: Context):
    yield value


class Yields:
    def __call__(self, value: int, context: Context):
        yield value


class NoContext:
    async def __call__(self, value: int) -> int:
        return value


@pytest.mark.parametrize(
    ("stage", "got"),
    [
        (of_one, "the parameters (value): too many positional arguments"),
        (of_three, "the parameters (value, context, more): missing a required argument: 'more'"),
        (by_keyword, "the parameters (value, context, *, more): missing a required argument: 'more'"),
        (NoContext(), "the parameters (value): too many positional arguments"),
        (7, "a int"),
        (None, "None"),
        (turned, "the parameters (context, value), of which the first is for the context"),
        (lambda context, value: value, "the parameters (context, value), of which the first is for the context"),
    ],
)
def test_a_stage_takes_a_value_and_a_context(stage, got):
    """B1: with what it takes, what it would get, where, and what to do."""
    assert faults(stage=stage) == [("g.stage", "something that is called with (value, context)", got)]


def test_the_methods_of_a_collector_and_a_source_are_looked_at_too():
    class Wrong:
        def add(self, value: int) -> None: ...

        def draw(self, count: int) -> int:
            return count

    async def load(value: str) -> None: ...

    assert faults(source=Wrong(), sink=Wrong(), load=load) == [
        (
            "g.sink.add",
            "something that is called with (value, context)",
            "the parameters (value): too many positional arguments",
        ),
        ("g.sink.finish", "something that is called with (context)", "nothing of that name"),
        ("g.source.draw", "something that is called with ()", "the parameters (count): missing a required argument: 'count'"),
        (
            "g.weights.load",
            "something that is called with (value, version)",
            "the parameters (value): too many positional arguments",
        ),
    ]
    assert faults(source=5) == [("g.source.draw", "something that is called with ()", "nothing of that name")]


@pytest.mark.parametrize(
    ("stage", "got"), [(streams, "an async generator"), (yields, "a generator"), (Yields(), "a generator")]
)
def test_a_stage_returns_and_does_not_yield(stage, got):
    """B1: what a generator function gives is no value but a generator, which a sink would be handed."""
    assert faults(stage=stage) == [("g.stage", "a function that returns", got)]


def test_a_class_is_no_object_of_it():
    """B1: the class of a stage, a collector or a source in place of an object; what to do names it."""

    class Numbers:
        def draw(self) -> int:
            return 1

    assert faults(stage=NoContext) == [("g.stage", "an object that is called with (value, context)", "the class NoContext")]
    assert faults(sink=Steps) == [("g.sink", "an object with add and finish", "the class Steps")]
    assert faults(source=Numbers) == [("g.source", "an object with draw, or an iterable", "the class Numbers")]

    class Pair:
        def __init__(self, value: int, context: Context) -> None: ...

    assert faults(stage=Pair) == []


def test_an_iterator_belongs_to_one_source():
    """B1: two sources with one iterator would each get what the other leaves."""
    graph, numbers = Graph("g"), iter([1, 2])
    joined = graph.merge("joined", [graph.source("a", numbers), graph.source("b", numbers), graph.source("c", iter([1]))])
    _ = joined >> graph.sink("sink", keep)
    with pytest.raises(BuildError) as caught:
        graph.build()
    (fault,) = caught.value.faults
    assert (fault.path, fault.expected) == ("g.b", "an iterator of its own")
    assert fault.got.startswith("the one of 'a' (test_check_calls.py:")


def test_what_to_do_about_code_that_cannot_be_called_is_said():
    """The remedies of what is mistaken most."""

    class Numbers:
        async def draw(self) -> int:
            return 1

    graph = Graph("g")
    lines = [("a", [1], turned), ("b", [1], NoContext), ("c", [1], streams), ("d", Numbers(), keep), ("e", None, keep)]
    for name, source, work in lines:
        _ = graph.source(name, source) >> graph.stage(f"{name} stage", work) >> graph.sink(f"{name} sink", keep)
    with pytest.raises(BuildError) as caught:
        graph.build()
    assert {(fault.path, fault.remedy) for fault in caught.value.faults} == {
        ("g.a stage", "swap the parameters: the value comes first, then the context"),
        ("g.b stage", "pass an object: NoContext()"),
        ("g.c stage", "give what it yields as one result: return Many([...])"),
        ("g.d.draw", "make draw a plain function; with placement=Threads() it may block"),
        ("g.e.draw", "pass what the items come from"),
    }


def test_a_handle_of_another_graph_is_told_with_the_name_of_that_graph():
    """B1: also where a node of the same name stands in this graph."""
    one, two = Graph("one"), Graph("two")
    source, stage, sink = one.source("a", [1]), one.stage("b", keep), one.sink("c", keep)
    _ = stage >> sink
    _ = source >> two.stage("b", keep)
    with pytest.raises(BuildError) as caught:
        one.build()
    (fault,) = caught.value.faults
    assert (fault.path, fault.got) == ("one.a->b", "'b' of another graph, 'two'")


def test_handles_serve_every_graph_that_a_change_gives():
    graph = Graph("g")
    source, stage, sink = graph.source("a", [1]), graph.stage("b", keep), graph.sink("c", keep)
    changed = graph.with_("b", workers=2)
    changed.edge(source, stage)
    changed.edge(stage, sink)
    assert changed.build().spec.nodes["b"].workers == 2


def test_what_is_called_counts_not_what_it_wraps():
    @functools.wraps(of_one)
    def with_context(value: int, context: Context) -> int:
        return of_one(value)

    @functools.wraps(keep)
    def without_context(value: int) -> int:
        return value

    assert faults(stage=with_context) == []
    assert [path for path, _, _ in faults(stage=without_context)] == ["g.stage"]


@pytest.mark.parametrize(
    "stage",
    [keep, lambda *arguments: arguments[0], functools.partial(of_three, more=1), getattr, max, lambda v, c=None, d=0: v],
)
def test_what_can_be_called_passes_also_where_nothing_can_be_read(stage):
    assert faults(stage=stage) == []


def test_replacing_a_stage_is_checked_as_well():
    graph = Graph("g")
    sink = graph.sink("sink", Steps(), collect=Collect(1), placement=Threads())
    _ = graph.source("source", [1]) >> sink
    with pytest.raises(BuildError, match=r"g\.sink\.add"):
        graph.replace("sink", object()).build()

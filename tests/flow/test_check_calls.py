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

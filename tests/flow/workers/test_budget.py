"""A run whose outside server is down ends, whatever its nodes do about it; one that gets somewhere goes on."""

import asyncio

import pytest

from flow import BudgetExceeded, Collect, Context, Failed, Filtered, Freshness, Graph, Many, Node, Run, Summary
from flow.testing import run_virtual


def line(work, count, **settings) -> tuple[Graph, list]:
    """Numbers through one stage into a list."""
    got: list = []

    def keep(value: object, context: Context) -> None:
        got.append(value)

    graph = Graph("line")
    _ = graph.source("source", range(count)) >> graph.stage("stage", work, **settings) >> graph.sink("sink", keep)
    return graph, got


def finish(graph: Graph) -> Summary:
    async def main() -> Summary:
        async with asyncio.timeout(10_000):
            return await Run(graph.build()).finish()

    return run_virtual(main())


def test_a_stage_whose_every_item_failed_ends_the_run_though_it_raises_nothing():
    """S2, S6: its results stand for failures and go on, so commits go on too, for ever."""
    graph, got = line(lambda value, context: Failed(value, "refused"), count=10**6)
    with pytest.raises(
        BudgetExceeded, match=r"node 'stage' failed 51 of its last 51 items; .* reason was: refused\. .*None for"
    ):
        finish(graph)
    assert len(got) <= 51


def test_half_of_the_items_may_fail_and_a_budget_may_be_left_out():
    def work(value: int, context: Context) -> object:
        return Failed(value, "odd") if value % 2 else value

    graph, got = line(work, count=300)
    finish(graph)
    assert len(got) == 300
    graph, got = line(lambda value, context: Failed(value, "all"), count=300, budget=None)
    finish(graph)
    assert len(got) == 300


def filtering(work, budget=(50, 100), tasks=10**6) -> Graph:
    """A line with tickets whose groups all pass through one more stage."""
    graph = Graph("filtering")
    cell = graph.latest("weights", str)
    members = graph.repeat("members", graph.source("tasks", range(tasks)), n=2)
    play = graph.stage("play", lambda value, context: value, reads=cell)
    groups = graph.group("groups", play)
    middle = graph.stage("middle", work, budget=budget)
    sink = graph.sink("train", Steps(), collect=Collect(2, steps=3))
    _ = Node(graph, "tasks") >> members >> play >> groups >> middle >> sink
    graph.feedback(sink, cell, initial="", freshness=Freshness(1))
    return graph


class Steps:
    """A sink of steps that does nothing."""

    def add(self, value: object, context: Context) -> None: ...

    def finish(self, context: Context) -> str:
        return ""


@pytest.mark.parametrize("nothing", [Filtered("dull"), Many([])])
def test_a_stage_that_filters_every_group_ends_the_run(nothing):
    """S2, S6: each ticket that comes back opens another group, so without this no step fills and nothing stalls."""
    with pytest.raises(BudgetExceeded, match="node 'middle' handed on none of its last 100 items; expected at least 1 of 100"):
        finish(filtering(lambda value, context: nothing))


def test_what_a_stage_says_of_its_filter_is_told_where_that_ends_the_run():
    with pytest.raises(BudgetExceeded, match=r"The last reason was: dull: all are alike; draw others\. Look at what"):
        finish(filtering(lambda value, context: Filtered("dull", "all are alike; draw others")))


def test_a_stage_may_filter_nearly_every_group():
    """A group in a hundred is progress, however slow."""
    seen: list[int] = []

    def work(value: object, context: Context) -> object:
        seen.append(context.birth)
        return value if context.birth % 100 == 99 else Filtered("dull")

    assert finish(filtering(work)).status == "completed"
    assert len(seen) >= 600
    summary = finish(filtering(lambda value, context: Filtered("dull"), budget=None, tasks=300))
    assert dict(summary.nodes["middle"].dropped) == {"dull": 300}

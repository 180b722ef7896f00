"""Declaring, changing and drawing graphs. The faults that ``build`` finds are in test_check."""

from pathlib import Path

import pytest

from flow import Cell, Collect, Context, Cost, Drop, Freshness, Gathered, Graph, Items, Retry, Threads

GOLDEN = Path(__file__).parents[1] / "golden"


async def play(task: str, context: Context) -> int:
    return len(task)


def judge(group: Gathered[int], context: Context) -> list[float]:
    return [float(value) for value in group.members]


class Train:
    def add(self, rewards: list[float], context: Context) -> None:
        """Takes all."""

    def finish(self, context: Context) -> bytes:
        return b""


def show(value: int, context: Context) -> None:
    """Shows nothing."""


def count(value: str, context: Context) -> int:
    return len(value)


def training() -> Graph:
    graph = Graph("training", pools={"sandbox": 8, "engine": 256})
    weights = graph.latest("weights", bytes)
    tasks = graph.source("tasks", ["a", "bb"])
    members = graph.repeat("members", tasks, n=4)
    episodes = graph.stage(
        "episodes", play, workers=16, reads=weights, needs={"sandbox": 1}, deadline_s=600, on_error=Drop(), order="input"
    )
    groups = graph.group("groups", episodes, missing=Retry(1, then="drop"))
    rewards = graph.stage("rewards", judge, placement=Threads())
    trainer = graph.sink("trainer", Train(), collect=Collect(2, steps=5))
    _ = tasks >> members >> episodes >> groups >> rewards >> trainer
    graph.edge(groups, rewards, capacity=Items(64) | Cost(4e6, len))
    graph.feedback(trainer, weights, initial=b"", freshness=Freshness(1))
    return graph


def simple() -> Graph:
    graph = Graph("simple")
    a, b, c = graph.source("a", ["x", "yy"]), graph.stage("b", count), graph.sink("c", show)
    _ = a >> b >> c
    return graph


def test_the_picture_of_a_graph_is_the_golden_one():
    assert training().draw() == (GOLDEN / "draw_training.txt").read_text().rstrip("\n")


def test_a_graph_that_cannot_be_built_is_drawn_all_the_same():
    graph = Graph("half")
    a, b = graph.stage("a", count), graph.stage("b", count)
    _ = a >> b >> a
    graph.sink("alone", show)
    assert graph.draw().splitlines() == [
        "graph half", "  [alone]  sink, show",
        "  [a]  (not connected to a source)", "  [b]  (not connected to a source)",
    ]  # fmt: skip


def test_arrows_connect_in_the_order_they_are_written():
    assert [edge.name for edge in simple().spec().edges] == ["a->b", "b->c"]


def test_an_edge_without_a_bound_holds_twice_the_workers_of_its_reader():
    """C5: small by default, and never without a bound."""
    plan = simple().with_("b", workers=5).build()
    assert {name: bound.items for name, bound in plan.capacities.items()} == {"a->b": 10, "b->c": 2}


def test_an_edge_may_be_bounded_in_items_and_in_cost():
    bound = training().build().capacities["groups->rewards"]
    assert (bound.items, bound.cost, bound.measure) == (64, 4e6, len)


def test_the_edge_into_a_sink_with_freshness_holds_every_ticket():
    graph = Graph("g")
    cell = graph.latest("weights", bytes)
    tasks = graph.source("tasks", ["a"])
    members = graph.repeat("members", tasks, n=2)
    play_it = graph.stage("play", play, reads=cell)
    groups = graph.group("groups", play_it)
    rewards = graph.stage("rewards", judge)
    trainer = graph.sink("trainer", Train(), collect=Collect(5))
    _ = tasks >> members >> play_it >> groups >> rewards >> trainer
    graph.feedback(trainer, cell, initial=b"", freshness=Freshness(2))
    assert graph.build().capacities["rewards->trainer"].items == (2 + 1) * 5


def test_types_are_passed_on_by_repeats_and_groups():
    nodes = training().spec().nodes
    assert (nodes["members"].takes, nodes["members"].gives) == (str, str)
    assert (nodes["groups"].takes, nodes["groups"].gives) == (int, Gathered[int])


def test_a_replaced_source_passes_its_new_type_through_the_repeat():
    graph = Graph("g")
    tasks = graph.source("tasks", [1])
    members = graph.repeat("members", tasks, n=2)
    groups = graph.group("groups", members)
    _ = tasks >> members >> groups
    assert graph.replace("tasks", ["a"]).spec().nodes["groups"].gives == Gathered[str]


def test_replacing_a_stage_leaves_the_first_graph_alone():
    def longer(value: str, context: Context) -> int:
        return 9

    graph = simple()
    other = graph.replace("b", longer)
    assert (graph.spec().nodes["b"].stage, other.spec().nodes["b"].stage) == (count, longer)
    assert other.build().spec.edges == graph.build().spec.edges


def test_a_replaced_stage_of_another_type_is_found_by_build():
    def wrong(value: bytes, context: Context) -> int:
        return 9

    with pytest.raises(ValueError, match="bytes, which 'b' takes"):
        simple().replace("b", wrong).build()


def test_a_collecting_sink_can_be_replaced():
    class Other:
        def add(self, rewards: list[float], context: Context) -> None:
            """Takes all."""

        async def finish(self, context: Context) -> bytes:
            return b"other"

    assert training().replace("trainer", Other()).build().spec.nodes["trainer"].gives is bytes


def test_settings_change_in_a_copy():
    graph = training()
    other = graph.with_("members", n=8).with_("episodes", workers=32, needs=None).with_("groups", missing="drop")
    nodes = other.build().spec.nodes
    assert (nodes["members"].size, nodes["episodes"].workers, nodes["episodes"].needs) == (8, 32, {})
    assert graph.spec().nodes["members"].size == 4
    assert nodes["episodes"].where.startswith("test_graph.py:")


def test_a_cell_is_given_to_with_as_its_handle():
    graph = training()
    other = graph.latest("other", bytes)
    assert isinstance(other, Cell)
    assert graph.with_("episodes", reads=other).spec().nodes["episodes"].reads == "other"


def test_a_misspelt_setting_names_the_nearest_one():
    """S105: nothing unknown is taken and ignored."""
    with pytest.raises(TypeError, match=r"training.episodes .*got 'worker'; did you mean 'workers'\?"):
        training().with_("episodes", worker=3)


def test_a_misspelt_node_names_those_there_are():
    with pytest.raises(KeyError, match="no node 'd'; it has a, b, c"):
        simple().with_("d", workers=3)


def test_a_group_holds_no_stage_to_replace():
    with pytest.raises(ValueError, match=r"expected a node with a stage, got the group training.groups"):
        training().replace("groups", count)


def test_a_node_shows_where_it_belongs():
    graph = Graph("g")
    assert repr(graph.source("a", [1])) == "<node g.a>"

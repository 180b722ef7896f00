"""What ``build`` allows and tells all the same, with the numbers and both places."""

import re

import pytest
from declared import Train, TrainOnSingles, number, show

from flow import Collect, Context, Freshness, Gathered, Graph, Items, Many, Node, Threads


async def waits(value: int, context: Context) -> int:
    return value


def several(value: int, context: Context) -> Many[int]:
    return Many([value, value])


def warnings(graph: Graph) -> list[str]:
    return [re.sub(r"test_check_warnings\.py:\d+", "HERE", warning) for warning in graph.build().warnings]


def loop(max_lag: int | None, workers: int = 1, graders: int = 1, steps: int | None = None, end: str = "drop") -> Graph:
    graph = Graph("g")
    cell = graph.latest("weights", str)
    tasks = graph.source("tasks", range(10))
    members = graph.repeat("members", tasks, n=2)
    play = graph.stage("play", number, reads=cell, workers=workers)
    groups = graph.group("groups", play)
    grade = graph.stage("grade", keep, workers=graders)
    sink = graph.sink("sink", Train(), collect=Collect(4, steps, end))
    _ = tasks >> members >> play >> groups >> grade >> sink
    graph.feedback(sink, cell, initial="", freshness=None if max_lag is None else Freshness(max_lag))
    return graph


def keep(value: Gathered[int], context: Context) -> Gathered[int]:
    return value


def collecting(*upstream: Node[int, int], graph: Graph, steps: int | None = None) -> Graph:
    sink = graph.sink("sink", TrainOnSingles(), collect=Collect(4, steps))
    at = graph.merge("joined", upstream) if len(upstream) > 1 else upstream[0]
    _ = at >> sink
    return graph


def test_workers_that_tickets_can_never_fill_are_a_warning():
    """B5: members between the repeat and the group, whole groups behind it."""
    assert warnings(loop(0, workers=9, graders=5)) == [
        "g.play (HERE): 9 workers, but at most 8 items can be in flight (4 tickets of 2); the rest is never busy",
        "g.grade (HERE): 5 workers, but at most 4 items can be in flight (4 tickets of 2); the rest is never busy",
    ]
    assert warnings(loop(0, workers=8, graders=4)) == []


def test_workers_that_a_pool_can_never_serve_are_a_warning():
    """B5: the tightest use of a pool counts at its largest size; a rate keeps no worker from being busy."""
    graph = Graph("g", pools={"sandbox": 32, "engine": (1, 64)}, rates={"search": 1})
    stage = graph.stage("stage", number, workers=64, needs={"sandbox": 2, "engine": 1, "search": 1})
    _ = graph.source("a", [1]) >> stage >> graph.sink("b", show)
    assert warnings(graph) == [
        "g.stage (HERE): 64 workers, but pool 'sandbox' of 32 units lets at most 16 run at once (2 each); "
        "the rest is never busy"
    ]
    assert warnings(graph.with_("stage", workers=16)) == []


def test_an_untyped_edge_is_a_warning():
    """B2."""
    graph = Graph("g")
    _ = graph.source("a", iter([1])) >> graph.sink("b", show)
    assert warnings(graph) == ["g.a->b (HERE): an untyped edge; annotate the stages to have it checked"]


def test_a_placement_without_effect_is_a_warning():
    graph = Graph("g")
    _ = graph.source("a", [1]) >> graph.stage("b", waits, placement=Threads()) >> graph.sink("c", show)
    assert warnings(graph) == ["g.b (HERE): its placement has no effect on what runs on the loop anyway"]


@pytest.mark.parametrize(("end", "enough"), [("drop", 2), ("short", 3)])
def test_a_source_too_short_for_the_steps_is_a_warning(end, enough):
    """S3: 10 prompts, groups of 2, 5 steps of 4 groups wanted. A repeat and its group cancel out."""
    assert warnings(loop(0, steps=5, end=end)) == [
        f"g.sink (HERE): 5 steps of 4 are 20 items, but 'tasks' can fill no more than 10, enough for {enough}; "
        "draw longer, or ask for fewer steps"
    ]
    assert warnings(loop(0, steps=2)) == []


class Endless:
    def draw(self) -> int:
        return 1


class Counted(Endless):
    def __len__(self) -> int:
        return 3


def test_the_length_of_sources_is_followed_through_fans():
    """S3: inputs of a merge add up, a broadcast gives all to each; where anything is unknown, nothing is said."""

    def told(first: object, second: object, work: object = number) -> list[str]:
        graph = Graph("g")
        a, b = graph.source("a", first), graph.source("b", second)
        stage, copies = graph.stage("stage", work), graph.broadcast("copies", b)
        _ = a >> stage
        _ = b >> copies >> graph.sink("log", show)
        graph = collecting(stage, copies, graph=graph, steps=2)
        return [warning for warning in warnings(graph) if "can fill" in warning]

    (warning,) = told([1, 2, 3, 4], Counted())
    assert "2 steps of 4 are 8 items, but 'a' and 'b' can fill no more than 7, enough for 1" in warning
    assert told(range(5), Counted()) == []
    assert told([1], Endless()) == []
    assert told([1], [1], several) == []


def test_steps_filled_in_order_of_arrival_are_a_warning_behind_what_leaves_it_to_chance():
    """B6: both nodes are named, with what would take the chance out."""
    graph = Graph("g")
    stage = graph.stage("stage", number, workers=4)
    _ = graph.source("a", [1]) >> stage
    collecting(stage, graph=graph)
    assert warnings(graph) == [
        "g.sink (HERE): fills its steps in order of arrival, which 'stage' (HERE) leaves to chance; "
        "set order='input' there if runs must repeat"
    ]
    assert warnings(graph.with_("stage", order="input")) == []
    assert warnings(graph.with_("stage", workers=1)) == []


def test_merges_and_balances_leave_the_order_to_chance_and_routes_do_not():
    """B6."""
    graph = Graph("g")
    a = graph.source("a", [1])
    left, right = graph.stage("left", number), graph.stage("right", number)
    kinds = graph.route("kinds", a, by=bool, to={False: left, True: right})
    shares = graph.balance("shares", right)
    _ = a >> kinds
    _ = right >> shares >> graph.sink("log", show)
    collecting(shares, graph=graph)
    _ = left >> graph.sink("second", TrainOnSingles(), collect=Collect(1))
    assert warnings(graph) == [
        "g.sink (HERE): fills its steps in order of arrival, which 'shares' (HERE) leaves to chance; "
        "graph.route decides by the item, whatever the timing"
    ]
    graph = Graph("g")
    (warning,) = warnings(collecting(graph.source("a", [1]), graph.source("b", [1]), graph=graph))
    assert "which 'joined' (HERE) leaves to chance; where runs must repeat, collect groups with Freshness(0)" in warning


def test_a_promise_to_keep_an_order_that_is_gone_is_a_warning_told_once():
    """B6: behind a node that promises order there is no need to look on."""
    graph = Graph("g")
    first, second = graph.stage("first", number, workers=2), graph.stage("second", number, workers=2, order="input")
    _ = graph.source("a", [1]) >> first >> second
    collecting(second, graph=graph)
    assert warnings(graph) == [
        "g.second (HERE): keeps the order of its inputs, which 'first' (HERE) leaves to chance; "
        "set order='input' there if runs must repeat"
    ]


@pytest.mark.parametrize("max_lag", [0, 1])
def test_a_sink_with_freshness_chooses_for_itself(max_lag):
    """B6: groups are taken in order of birth, or by age."""
    assert warnings(loop(max_lag, workers=4)) == []
    assert [warning for warning in warnings(loop(None, workers=4)) if "chance" in warning] != []


def test_a_sink_that_takes_item_by_item_makes_no_promise():
    """B6: quiet for what most graphs end in."""
    graph = Graph("g")
    a, b = graph.source("a", [1]), graph.stage("b", number, workers=4)
    _ = a >> b >> graph.sink("c", show)
    graph.edge(a, b, capacity=Items(2))
    assert warnings(graph) == []


def joined(**settings) -> Graph:
    graph = Graph("g")
    merged = graph.merge("joined", [graph.source("often", [1]), graph.source("seldom", [2])], **settings)
    _ = merged >> graph.sink("sink", show)
    return graph


def test_a_patience_that_overrules_the_weights_of_a_merge_is_told():
    """C7: patience is a promise too; by itself it is as long as the weights ask for."""
    assert joined(weights={"often": 20}).build().spec.nodes["joined"].patience == 42
    assert joined().build().spec.nodes["joined"].patience == 8
    assert warnings(joined(weights={"often": 20})) == []
    assert warnings(joined(weights={"often": 20}, patience=20)) == []
    assert warnings(joined(patience=1)) == []
    assert warnings(joined(weights={"often": 20}, patience=8)) == [
        "g.joined (HERE): with weights 20 of often, 1 of seldom an input is passed over 20 times in a row, but its patience of "
        "8 ends before; leave patience out to keep the weights"
    ]


class Advised(Train):
    def advice(self, freshness: Freshness | None) -> list[str]:
        return [] if freshness == Freshness(0) else [f"{freshness}; set max_lag=0"]


class Doubting:
    def __call__(self, value: Gathered[int], context: Context) -> Gathered[int]:
        return value

    def advice(self, freshness: Freshness | None) -> list[str]:
        return [f"doubts with {freshness}", "and once more"]


def test_what_a_stage_says_of_the_graph_it_is_in_is_a_warning():
    """A sink hears the freshness of its feedback edge, whoever else None; one with nothing to say is quiet."""
    doubts = ["g.grade (HERE): doubts with None", "g.grade (HERE): and once more"]
    for max_lag, said in ((0, []), (2, [f"g.sink (HERE): {Freshness(2)}; set max_lag=0"])):
        told = warnings(loop(max_lag).replace("grade", Doubting()).replace("sink", Advised()))
        assert told == doubts + said
    assert warnings(loop(None).replace("sink", Advised()))[-1] == "g.sink (HERE): None; set max_lag=0"


def test_warnings_reach_the_logger_once_a_line_each(caplog):
    graph = joined(weights={"often": 20}, patience=8)
    plan = graph.build()
    assert [(record.name, record.levelname, record.message) for record in caplog.records] == [
        ("headrace", "WARNING", warning) for warning in plan.warnings
    ]
    assert len(caplog.records) == 1
    caplog.clear()
    assert graph.build(quiet=True) == plan
    assert caplog.records == []

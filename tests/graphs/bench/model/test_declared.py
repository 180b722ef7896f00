"""A ready graph read as a line of the model, and what is refused."""

import itertools
from typing import Any

import pytest

from flow import Collect, Context, Freshness, Graph, Items, Retry
from graphs.bench.model.declared import line_of
from graphs.bench.model.spec import Line, Work
from graphs.bench.scripted import WorldConfig, scripted_parts, settings_of, training


def test_the_graph_of_training_is_read_as_it_is_declared() -> None:
    world = WorldConfig(judge_s=0.1, judges=3)
    settings = settings_of(world, steps=5, groups_per_step=2, max_concurrency=6, max_lag=1)
    line = line_of(training(world, settings, scripted_parts(world, 6, 10)).build(quiet=True))
    assert line == Line(
        "rl", batch=2, steps=5,
        members=(Work("episodes", 6, 12, reads=True),),
        after=(Work("rewards", 6, 12, {"judge": 1}), Work("advantages", 1, 2), Work("batches", 1, 2)),
        size=4, missing="retry", retries=1, pools={"engine": 7, "judge": 3}, max_lag=1, late="wait",
        capacities={"repeat": 2, "barrier": 2, "sink": 4},
    )  # fmt: skip


class Counts:
    """Collects nothing."""

    def add(self, value: Any, context: Context) -> None: ...

    def finish(self, context: Context) -> int:
        return 0


def same(value: int, context: Context) -> int:
    return value


def line(**stage: Any) -> Graph:
    """A line without groups, of one stage with these settings."""
    graph = Graph("line", rates={"starts": 5.0}, pools={"fixed": 2})
    source = graph.source("source", itertools.count())
    work = graph.stage("work", same, **stage)
    sink = graph.sink("sink", Counts(), collect=Collect(2, steps=3))
    source >> work >> sink
    return graph


def test_a_line_without_groups_has_its_stages_before_and_no_way_back() -> None:
    graph = line(workers=3, needs={"fixed": 1})
    found = line_of(graph.build(quiet=True))
    assert (found.before, found.members, found.after) == ((Work("work", 3, 6, {"fixed": 1}),), (), ())
    assert (found.size, found.max_lag, found.capacities) == (0, None, {"sink": 2})


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ({"order": "input"}, "work keeps an order"),
        ({"needs": {"starts": 1}}, "work needs rate starts"),
        ({"on_error": Retry(1)}, "work retries otherwise than a barrier that then drops"),
    ],
)
def test_what_the_model_does_not_know_is_refused_by_name(stage: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"expected a line that the event model knows, got graph 'line', in which {said}"):
        line_of(line(**stage).build(quiet=True))


def test_a_bound_of_the_users_own_is_kept() -> None:
    own = Graph("own")
    source, work = own.source("source", itertools.count()), own.stage("work", same)
    sink = own.sink("sink", Counts(), collect=Collect(2, steps=3))
    source >> work >> sink
    own.edge(source, work, capacity=Items(9))
    assert line_of(own.build(quiet=True)).before == (Work("work", 1, 9),)


def test_freshness_is_read_with_its_depth() -> None:
    graph = Graph("deep")
    weights = graph.latest("weights", int)
    source = graph.source("source", itertools.count())
    members = graph.repeat("members", source, n=2)
    work = graph.stage("work", same, workers=2, reads=weights)
    groups = graph.group("groups", work, missing="drop")
    sink = graph.sink("sink", Counts(), collect=Collect(2, steps=3))
    source >> members >> work >> groups >> sink
    graph.feedback(sink, weights, initial=0, freshness=Freshness(max_lag=4, late="drop", depth=1))
    found = line_of(graph.build(quiet=True))
    assert (found.max_lag, found.late, found.depth, found.tickets) == (4, "drop", 1, 4)
    assert (found.missing, found.retries) == ("drop", 0)

"""Random graphs and their interpreter: worked out by hand once, and a run that loses, doubles or ages something is caught."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import find, given, settings

from flow import Freshness, Retry, Shrink
from flow.testing import Collected, RandomGraph, check_graph, context, expected, graphs, random_graph, reached, simulate
from flow.testing._graphs import Inlet, Training
from flow.testing._orders import order_faults
from flow.testing._parts import Fork, Pair, Side, Step
from flow.testing._works import Diary


def step(name: str, fates: dict | None = None, **changes) -> Step:
    """A stage whose fates are given by hand: (path, retry) -> raise, filter, or a number of outputs."""
    settings = {"fail": 0, "filter": 0, "spread": False, "retries": 0, "then": "drop", "workers": 2, "order": "any"}
    made = Step(name, **{**settings, "needs": (), "room": None, **changes})
    object.__setattr__(made, "fate", lambda seed, path, retry: (fates or {}).get((path, retry), 1))
    return made


BY_HAND = RandomGraph(
    seed=0,
    tasks=4,
    parts=(
        step("before", {((1,), 0): "filter", ((2,), 0): 2, ((3,), 0): 0}, spread=True),
        Pair("groups", 2, (step("inside", {((0, 0, 1), 0): "raise", ((2, 1, 0), 0): "raise"}),), Shrink(1)),
    ),
)
REACHED = {((0, 0), ((0, 0, 0),)), ((2, 0), ((2, 0, 0), (2, 0, 1))), ((2, 1), ((2, 1, 1),))}


def test_the_interpreter_gives_what_is_worked_out_by_hand():
    """Task 0 passes once and loses member 1, task 1 is filtered, task 2 becomes two of which the second loses member 0."""
    assert expected(BY_HAND)["sink"].must == expected(BY_HAND)["sink"].may == Counter(dict.fromkeys(REACHED, 1))


def test_the_engine_gives_the_same():
    sinks = defaultdict(Collected)
    simulate(BY_HAND.graph(sinks), 3, kill=0.1)
    assert set(reached(sinks["sink"])) == REACHED


def test_barriers_of_barriers_and_retries_are_interpreted():
    twice = RandomGraph(
        0, 1, (Pair("a", 1, (step("x"),), "drop"), Pair("b", 2, (step("y", {((0, 1), 0): "raise"}),), Retry(1, "drop")))
    )
    assert expected(twice)["sink"].must == Counter({((0,), (((0, 0),), ((0, 0),))): 1})
    check_graph(twice)
    once = RandomGraph(0, 1, (twice.parts[0], Pair("b", 2, (step("y", {((0, 1), 0): "raise"}),), "drop")))
    assert expected(once) == {}
    check_graph(once)


class Loses(Collected):
    def __call__(self, value, context):
        if context.path != (1,):
            super().__call__(value, context)


class Doubles(Collected):
    def __call__(self, value, context):
        super().__call__(value, context)
        if context.path == (1,):
            super().__call__(value, context)


@pytest.mark.parametrize(
    ("sink", "got"),
    [(Loses, r"got \{\(\(1,\), None\): 1\} less at 'sink'"), (Doubles, r"got \{\(\(1,\), None\): 1\} more at 'sink'")],
)
def test_a_run_that_loses_or_doubles_something_is_caught(monkeypatch, sink, got):
    monkeypatch.setattr("flow.testing._oracle.Collected", sink)
    with pytest.raises(AssertionError, match=f"expected what the interpreter gives, {got}"):
        check_graph(RandomGraph(0, 3, (step("only"),)), seed=4)


def test_training_that_is_too_old_too_little_or_twice_is_caught(monkeypatch):
    graph = RandomGraph(0, 60, (Pair("a", 2, (step("x"),), "drop"),), training=Training(Freshness(1), 2, 4, 0.0))
    check_graph(graph)

    class Wrong(Collected):
        def finish(self, context):
            result = super().finish(context)
            if self.steps == 4:
                first, second, *_ = self.arrivals
                object.__setattr__(second, "path", first.path)
                object.__setattr__(first, "lag", 2)
                self.arrivals.pop()
            return result

    monkeypatch.setattr("flow.testing._oracle.Collected", Wrong)
    with pytest.raises(AssertionError, match=r"more at 'sink'.*lags \[2.*7 groups of 8"):
        check_graph(graph)


FANS = RandomGraph(
    seed=0,
    tasks=3,
    parts=(
        Side("copies", ((step("beside", {((0, 2, 0), 0): "raise"}),),)),
        Fork("both", "broadcast", ((step("left"),), ()), weights=(1, 2)),
        Fork("either", "balance", ((step("one", workers=1),), (step("two", workers=3),)), weights=(2, 1)),
    ),
    inlets=(Inlet(1, (step("inlet", {((1, 0), 0): 2}, spread=True),)),),
)
"""Sources 0 and 1 meet; each item has a copy beside it, of which one fails, and is doubled. Either stage may handle it."""


def test_fans_are_interpreted_as_worked_out_by_hand():
    beside = {(0, 0, 0), (0, 1, 0), (1, 0, 0, 0), (1, 0, 1, 0)}
    doubled = {(*path[:-1], 1, way) for path in beside | {(0, 2, 0)} for way in (0, 1)}
    want = expected(FANS)
    assert want["copies end0"].must == Counter({(path, None): 1 for path in beside})
    assert want["sink"].must == Counter({(path, None): 1 for path in doubled})
    check_graph(FANS, 1, kill=0.1)


def test_members_that_go_two_ways_are_interpreted_as_worked_out_by_hand():
    """A copy of a member of a group that is dropped arrives or not; one of a member made again is there twice, by its name."""
    copies = Side("copies", ((),))
    again = Pair("groups", 2, (copies, step("late", {((0, 1, 1), 0): "raise"})), Retry(1, "drop"))
    want = expected(RandomGraph(0, 1, (again,)))
    assert want["copies end0"].must == Counter({((0, 0, 0), None): 1, ((0, 1, 0), None): 2})
    assert want["sink"].must == Counter({((0,), ((0, 0, 1), (0, 1, 1))): 1})
    check_graph(RandomGraph(0, 1, (again,)), 2)
    dropped = Pair("groups", 2, again.inside, "drop")
    want = expected(RandomGraph(0, 1, (dropped,)))
    assert want["copies end0"].must == Counter()
    assert want["copies end0"].may == Counter({((0, 0, 0), None): 1, ((0, 1, 0), None): 1})
    check_graph(RandomGraph(0, 1, (dropped,)), 2)


def test_a_route_leads_by_key_and_drops_what_has_none():
    route = Fork("by", "route", ((step("a"),), (step("b"),)), joined=False, doors=(1, 0), lost=1)
    drawn = RandomGraph(3, 9, (route,))
    doors = {count: (1, 0, None)[route.key(3, count)] for count in range(9)}
    assert {None, 0, 1} == set(doors.values())
    for way in (0, 1):
        assert expected(drawn)[f"by end{way}"].must == Counter({((count,), None): 1 for count in doors if doors[count] == way})
    assert check_graph(drawn).summary.nodes["by"].dropped == {"KeyError": list(doors.values()).count(None)}


@pytest.mark.parametrize("keeps", ["input", "key"])
def test_an_order_that_is_broken_is_caught(keeps):
    """The diary of a stage that keeps no order, read as that of one that does."""
    loose = step("loose", workers=4)
    kept = step("loose", workers=4, order="input") if keeps == "input" else step("loose", workers=4, key=1)
    drawn = RandomGraph(5, 40, (loose, step("next", workers=1)))
    diary, sinks = Diary(), defaultdict(Collected)
    simulate(drawn.graph(sinks, diary), 5)
    promised = replace(drawn, parts=(kept, *drawn.parts[1:])).graph(sinks).build().spec
    assert any("from loose to next" in fault for fault in order_faults(promised, diary))
    assert order_faults(drawn.graph(sinks).build().spec, diary) == []


def test_two_at_once_of_one_key_are_caught():
    one, other = context(node="keyed", path=(1,)), context(node="keyed", path=(0,))
    diary = Diary()
    diary.begin(one, 7)
    diary.begin(other, 7)
    diary.end(one, 7)
    assert len(diary.faults) == 1
    assert "while (1,) of its key was handled" in diary.faults[0]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(graphs(training=True))
def test_the_strategy_draws_graphs_that_train(graph):
    assert graph.training is not None
    check_graph(graph, graph.seed % 100)


def test_a_graph_that_is_found_is_shown_and_small():
    found = find(graphs(training=False), lambda graph: any(isinstance(part, Pair) for part in graph.parts))
    assert repr(found).startswith("RandomGraph(seed=0, tasks=6, parts=(Pair(name='groups0', size=2")
    assert len(found.parts) == 1


def test_the_same_generator_draws_the_same_graph():
    assert random_graph(random.Random(3)) == random_graph(random.Random(3))
    assert len({repr(random_graph(random.Random(seed))) for seed in range(20)}) == 20

"""Random graphs and their interpreter: worked out by hand once, and a run that loses, doubles or ages something is caught."""

import random
from collections import Counter

import pytest
from hypothesis import find, given, settings

from flow import Freshness, Retry, Shrink
from flow.testing import Collected, RandomGraph, check_graph, expected, graphs, random_graph, reached, simulate
from flow.testing._graphs import Pair, Step, Training


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
    assert expected(BY_HAND) == Counter(dict.fromkeys(REACHED, 1))


def test_the_engine_gives_the_same():
    sink = Collected()
    simulate(BY_HAND.graph(sink), 3, kill=0.1)
    assert set(reached(sink)) == REACHED


def test_barriers_of_barriers_and_retries_are_interpreted():
    twice = RandomGraph(
        0, 1, (Pair("a", 1, (step("x"),), "drop"), Pair("b", 2, (step("y", {((0, 1), 0): "raise"}),), Retry(1, "drop")))
    )
    assert expected(twice) == Counter({((0,), (((0, 0),), ((0, 0),))): 1})
    check_graph(twice)
    once = RandomGraph(0, 1, (twice.parts[0], Pair("b", 2, (step("y", {((0, 1), 0): "raise"}),), "drop")))
    assert expected(once) == Counter()
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
    [(Loses, r"got \{\} more and \{\(\(1,\), None\): 1\} less"), (Doubles, r"got \{\(\(1,\), None\): 1\} more and \{\} less")],
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
    with pytest.raises(AssertionError, match=r"lags \[2.*groups twice.*7 groups of 8"):
        check_graph(graph)


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

"""Whole random graphs in virtual time with workers killed and held up, against a sequential interpreter of the same graph.

Graphs, interpreter and comparison are those of ``flow.testing``, which has tests of its own.
"""

import random

import pytest
from hypothesis import given, settings

from flow import Retry, Shrink
from flow.testing import Collected, check_graph, graphs, random_graph, simulate
from flow.testing._graphs import Pair, Step

KILLS = (0, 0.05, 0.2)
"""Shares of the due steps that are cancelled, in turn."""


@pytest.mark.parametrize("block", range(8))
def test_every_item_ends_exactly_once_where_the_interpreter_says(block):
    """C1 to C4, S1 to S4, G1 to G5; S6, S7, S15, S19, S20, S41: lines and groups, with and without kills."""
    for seed in range(block * 100, block * 100 + 100):
        check_graph(random_graph(random.Random(seed)), seed, KILLS[seed % 3], late=0.1 * (seed % 2))


def test_every_item_ends_exactly_once_with_fewer_workers_and_slow_commits():
    """C3, S1: workers that leave for good let nothing fall, and the rest of them finish."""
    left = 0
    for seed in range(200):
        graph = random_graph(random.Random(seed))
        left += check_graph(graph, seed, 0.1, leave=0.4, late=0.05, slow=0.05).left
    assert left > 100


@settings(max_examples=50, deadline=None, derandomize=True)
@given(graphs())
def test_graphs_that_can_shrink_give_what_the_interpreter_says(graph):
    """The same, drawn by Hypothesis, so that what fails is small."""
    check_graph(graph, graph.seed, 0.1, leave=0.2, late=0.1)


@pytest.mark.parametrize("block", range(6))
def test_nothing_is_trained_too_old_and_nothing_is_dropped_for_age_unless_asked(block):
    """F3, F4, S5, S14, S16, S17, S18: steps full, lags within the bound, every group once and one that can be trained."""
    for seed in range(block * 30, block * 30 + 30):
        graph = random_graph(random.Random(seed), tasks=150, training=True)
        check_graph(graph, seed, (0, 0.03, 0.1)[seed % 3], leave=0.2 * (seed % 2), late=0.1 * (seed % 2))


def test_groups_that_come_late_are_dropped_where_that_is_declared():
    """S16, S17: counted, and every ticket comes back, or the steps would not fill."""
    stale = 0
    for seed in range(120):
        graph = random_graph(random.Random(seed), tasks=150, training=True)
        if graph.training.freshness.late == "drop":
            summary = check_graph(graph, seed, 0.1 * (seed % 2), slow=0.05).summary
            stale += sum(node.dropped.get("stale", 0) for node in summary.nodes.values())
    assert stale > 0


def test_a_run_is_the_same_for_the_same_seed():
    graph = random_graph(random.Random(5), tasks=150, training=True)

    def once():
        sink = Collected()
        return simulate(graph.graph(sink), 5, 0.1, leave=0.3, late=0.1, slow=0.1).summary, sink.arrivals

    assert once() == once()


def test_the_graphs_drawn_here_cover_all_there_is():
    """A simulation that never fails, filters, spreads or shrinks would prove nothing."""
    drawn = [random_graph(random.Random(seed)) for seed in range(40)]
    parts = [part for graph in drawn for part in graph.parts]
    pairs = [part for part in parts if isinstance(part, Pair)]
    steps = [part for part in parts if isinstance(part, Step)] + [step for pair in pairs for step in pair.inside]
    assert {type(pair.missing) for pair in pairs} == {str, Shrink, Retry}
    assert {step.then for step in steps} == {"drop", "emit"}
    assert {step.retries for step in steps} == {0, 1, 2}
    assert {step.order for step in steps} == {"any", "input"}
    assert {step.needs for step in steps} >= {(), (("b", 2),), (("a", 1), ("b", 1))}
    assert any(step.spread for step in steps)
    assert {len([part for part in graph.parts if isinstance(part, Pair)]) for graph in drawn} == {0, 1, 2}
    assert {graph.collect is None for graph in drawn} == {True, False}

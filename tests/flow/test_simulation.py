"""Whole random graphs in virtual time with workers killed and held up, against a sequential interpreter of the same graph.

Graphs, interpreter and comparison are those of ``flow.testing``, which has tests of its own. ``test_soak.py`` does the same by
the ten thousand.
"""

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings

from flow import Retry, Shrink, Threads
from flow.testing import Collected, check_graph, graphs, random_graph, simulate
from flow.testing._orders import checked_orders
from flow.testing._parts import Fork, Pair, Side, Step

KILLS = (0, 0.05, 0.2)
"""Shares of the due steps that are cancelled, in turn."""


def reasons(done) -> Counter:
    """Items that a run dropped, by reason."""
    return sum((Counter(node.dropped) for node in done.summary.nodes.values()), Counter())


@pytest.mark.parametrize("block", range(8))
def test_every_item_ends_exactly_once_where_the_interpreter_says(block):
    """C1 to C5, C7, S1 to S4, G1 to G5; S6, S7, S15, S19, S20, S41: lines, fans and groups, with and without kills."""
    dropped = Counter()
    for seed in range(block * 60, block * 60 + 60):
        dropped += reasons(check_graph(random_graph(random.Random(seed)), seed, KILLS[seed % 3], late=0.1 * (seed % 2)))
    assert dropped.keys() >= {"drawn", "ValueError", "DeadlineExceeded", "KeyError", "group closed", "too few members"}


def test_every_item_ends_exactly_once_with_fewer_workers_and_slow_commits():
    """C3, S1: workers that leave for good let nothing fall, and the rest of them finish."""
    left = 0
    for seed in range(1000, 1100):
        graph = random_graph(random.Random(seed))
        left += check_graph(graph, seed, 0.1, leave=0.4, late=0.05, slow=0.05).left
    assert left > 100


@settings(max_examples=40, deadline=None, derandomize=True)
@given(graphs())
def test_graphs_that_can_shrink_give_what_the_interpreter_says(graph):
    """The same, drawn by Hypothesis, so that what fails is small."""
    check_graph(graph, graph.seed, 0.1, leave=0.2, late=0.1)


@pytest.mark.parametrize("block", range(6))
def test_nothing_is_trained_too_old_and_nothing_is_dropped_for_age_unless_asked(block):
    """F3, F4, F5, S5, S14, S16, S17, S18: steps full, lags within the bound, every group once and one that can be trained."""
    for seed in range(block * 25, block * 25 + 25):
        graph = random_graph(random.Random(seed), tasks=50, training=True)
        check_graph(graph, seed, (0, 0.03, 0.1)[seed % 3], leave=0.2 * (seed % 2), late=0.1 * (seed % 2))


def test_groups_that_come_late_are_dropped_where_that_is_declared():
    """S16, S17: counted, and every ticket comes back, or the steps would not fill."""
    dropped = Counter()
    for seed in range(1000, 1080):
        graph = random_graph(random.Random(seed), tasks=50, training=True)
        if graph.training.freshness.late == "drop":
            dropped += reasons(check_graph(graph, seed, 0.1 * (seed % 2), slow=0.05))
    assert dropped["stale"] > 0
    assert dropped["surplus"] > 0


def test_a_run_is_the_same_for_the_same_seed():
    graph = random_graph(random.Random(5), tasks=150, training=True)

    def once():
        sinks = defaultdict(Collected)
        summary = simulate(graph.graph(sinks), 5, 0.1, leave=0.3, late=0.1, slow=0.1).summary
        return summary, {name: sink.arrivals for name, sink in sinks.items()}

    assert once() == once()


def fans_of(parts) -> list:
    return [part for part in parts if isinstance(part, Fork | Side)]


def steps_of(parts) -> list[Step]:
    """Every stage among these parts, inside pairs and on branches too."""
    found = [part for part in parts if isinstance(part, Step)]
    found += [step for part in parts if isinstance(part, Pair) for step in steps_of(part.inside)]
    return found + [step for fan in fans_of(parts) for branch in fan.branches for step in steps_of(branch)]


def test_the_stages_drawn_here_cover_all_there_is():
    """A simulation that never fails, filters, spreads or waits would prove nothing."""
    drawn = [random_graph(random.Random(seed)) for seed in range(75)]
    steps = [step for graph in drawn for step in steps_of(graph.parts)]
    assert {step.then for step in steps} == {"drop", "emit"}
    assert {step.retries for step in steps} == {0, 1, 2}
    assert {(step.order, step.key is None) for step in steps} == {("any", True), ("any", False), ("input", True)}
    assert {step.place for step in steps} == {"loop", "inline", "threads"}
    assert {name for step in steps for name, _ in step.needs} == {"a", "b", "c", "starts"}
    assert {len(step.needs) for step in steps} == {0, 1, 2}
    assert {step.cost for step in steps} == {None, 2.0, 6.0}
    assert {step.spread for step in steps} == {step.hangs for step in steps} == {True, False}
    assert any(step.acts for step in steps)


def test_the_graphs_drawn_here_cover_all_shapes():
    """B1, B5: each kind of fan where it may stand, ends of all kinds, sources that meet."""
    drawn = [random_graph(random.Random(seed)) for seed in range(200)]
    pairs = [part for graph in drawn for part in graph.parts if isinstance(part, Pair)]
    assert {type(pair.missing) for pair in pairs} == {str, Shrink, Retry}
    assert {len([part for part in graph.parts if isinstance(part, Pair)]) for graph in drawn} == {0, 1, 2}
    free = [fan for graph in drawn for fan in fans_of(graph.parts)]
    forks = [fan for fan in free if isinstance(fan, Fork)]
    assert {(fork.kind, fork.joined) for fork in forks} == {
        (kind, joined) for kind in ("broadcast", "balance", "route") for joined in (True, False)
    }
    assert {(bool(fork.lost), len(fork.doors) > len(fork.branches)) for fork in forks if fork.kind == "route"} == {
        (lost, more) for lost in (True, False) for more in (True, False)
    }
    assert {() in fork.branches for fork in forks} == {True, False}
    assert {fork.patience for fork in forks} == {1, 2, 8}
    assert any(isinstance(fan, Side) for fan in free)
    inside = [fan for pair in pairs for fan in fans_of(pair.inside)]
    assert {getattr(fan, "kind", "side") for fan in inside} == {"side", "balance", "route"}
    assert {len(graph.inlets) for graph in drawn} == {0, 1, 2}
    assert {graph.collect for graph in drawn} == {None, 1, 3}
    plans = [graph.graph(defaultdict(Collected)).build() for graph in drawn[:40]]
    assert set().union(*(checked_orders(plan.spec) for plan in plans)) == {"source", "input", "key", "one worker"}
    assert any(
        isinstance(node.placement, Threads) for plan in plans for node in plan.spec.nodes.values() if node.kind == "source"
    )
    assert all(plan.warnings for plan in plans)


def test_the_training_drawn_here_covers_all_shapes():
    """F3, F5: fans inside the pair and behind it, depths below the bound, steps of several groups, slow loads."""
    drawn = [random_graph(random.Random(seed), training=True) for seed in range(80)]
    where = [next(index for index, part in enumerate(graph.parts) if isinstance(part, Pair)) for graph in drawn]
    inside = [fan for graph, at in zip(drawn, where, strict=True) for fan in fans_of(graph.parts[at].inside)]
    behind = [fan for graph, at in zip(drawn, where, strict=True) for fan in fans_of(graph.parts[at + 1 :])]
    for fans in (inside, behind):
        assert {getattr(fan, "kind", "side") for fan in fans} == {"side", "balance", "route"}
    bounds = [graph.training.freshness for graph in drawn]
    assert {bound.max_lag for bound in bounds} == {0, 1, 2}
    assert {bound.late for bound in bounds} == {"wait", "drop"}
    assert any(bound.depth is not None and bound.depth < bound.max_lag for bound in bounds)
    assert {graph.training.items for graph in drawn} == {1, 2, 3}
    assert {graph.training.load_s for graph in drawn} == {0.0, 5.0}

"""Faults on purpose: decided by who the item is, declared in one line, each of its kind."""

import asyncio
from collections import Counter

import pytest

from flow import BuildError, Collect, Context, Drop, Graph, Retry
from flow.testing import Collected, Faults, faulty, simulate
from flow.testing._chance import chance, exponential, number, pareto


async def double(number: int, context: Context) -> int:
    await asyncio.sleep(0.01)
    return 2 * number


def line(sink, count: int = 200, **settings) -> Graph:
    graph = Graph("line")
    numbers = graph.source("numbers", range(count))
    (
        numbers
        >> graph.stage("play", double, **{"workers": 8, "on_error": Drop(10**6, 10**6), **settings})
        >> graph.sink("sink", sink)
    )
    return graph


def run(faults: Faults, seed: int = 0, kill: float = 0.0, **settings):
    sink = Collected()
    done = simulate(faulty(line(sink, **settings), {"play": faults}), seed, kill)
    return {arrival.path[0] for arrival in sink.arrivals}, done


@pytest.mark.parametrize("kind", ["raise", "filter", "cancel"])
def test_what_is_lost_is_what_the_faults_say_whatever_the_schedule(kind):
    faults = Faults(0.3, (kind,), seed=5)
    lost = {index for index in range(200) if faults.of("play", (index,)) is not None}
    assert 40 < len(lost) < 80
    for seed in range(3):
        came, done = run(faults, seed, kill=0.1)
        assert came == set(range(200)) - lost
        reason = {"raise": "InjectedError", "filter": "injected", "cancel": "CancelledInside"}[kind]
        assert done.summary.nodes["play"].dropped == {reason: len(lost)}


def test_a_retry_meets_a_fate_of_its_own():
    faults = Faults(0.3, ("raise",), seed=5)
    came, done = run(faults, on_error=Retry(1, then=Drop(10**6, 10**6)))
    lost = {index for index in range(200) if faults.of("play", (index,), 0) and faults.of("play", (index,), 1)}
    assert came == set(range(200)) - lost
    assert 0 < len(lost) < 40
    assert done.summary.nodes["play"].retried == sum(faults.of("play", (index,)) is not None for index in range(200))


@pytest.mark.parametrize("kind", ["delay", "straggle", "deaf"])
def test_what_is_delayed_arrives_later(kind):
    came, done = run(Faults(1.0, (kind,), delay_s=5.0))
    calm = run(Faults(0.0))[1]
    assert came == set(range(200))
    assert done.seconds > 50 > calm.seconds


def test_a_cancel_is_swallowed_where_the_faults_say_so_and_the_item_comes_once():
    """A real cancel is never swallowed by the engine, whatever the stage does."""
    sink = Collected()
    done = simulate(faulty(line(sink), {"play": Faults(0.5, ("deaf",))}), 1, kill=0.2)
    assert done.kills > 20
    assert Counter(sink.values) == Counter(range(0, 400, 2))


def test_a_wrapped_stage_keeps_its_types_and_is_opened_and_closed():
    log = []

    class Holds:
        async def __aenter__(self):
            log.append("open")

        async def __aexit__(self, *error):
            log.append("close")

        def __call__(self, number: int, context: Context) -> str:
            return str(number)

    graph = Graph("typed")

    def add(number: int, context: Context) -> None: ...

    graph.source("numbers", [1]) >> graph.stage("text", Holds()) >> graph.sink("sink", add)
    with pytest.raises(BuildError, match="got       str, which 'text' gives"):
        faulty(graph, {"text": Faults(0.1)}).build()
    simulate(faulty(graph.replace("sink", Collected()), {"text": Faults(0.0)}))
    assert log == ["open", "close"]


def test_what_has_no_attempts_cannot_be_wrapped():
    graph = Graph("ends")
    graph.source("numbers", range(3)) >> graph.sink("sink", Collected(), collect=Collect(1))
    with pytest.raises(TypeError, match="expected a stage or a plain sink to wrap, got range"):
        faulty(graph, {"numbers": Faults(0.1)})
    with pytest.raises(KeyError, match="no node 'plays'"):
        faulty(graph, {"plays": Faults(0.1)})


def test_chance_is_even_and_the_same_everywhere():
    draws = [chance(3, number("play"), (index,), 0) for index in range(20_000)]
    assert 0 <= min(draws) < 0.001 < 0.999 < max(draws) < 1
    for part in range(10):  # the deviation of such a count is 42
        assert abs(sum(part / 10 <= draw < (part + 1) / 10 for draw in draws) - 2000) < 200
    assert chance(1, 2) == 0.3761348818101612  # worked out once and kept: other processes must agree


def test_durations_have_the_distribution_they_are_named_for():
    shares = [(index + 0.5) / 10_000 for index in range(10_000)]
    assert sum(exponential(share, 3.0) for share in shares) / 10_000 == pytest.approx(3.0, rel=0.01)
    assert min(pareto(share, 2.0) for share in shares) == pytest.approx(2.0, rel=0.001)
    assert pareto(0.5, 1.0) == pytest.approx(2 ** (2 / 3))  # the median of a tail of 1.5

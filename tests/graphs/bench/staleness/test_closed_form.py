"""The closed form of the lag against the engine in virtual time: the same to the bit, once the pipeline is full."""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flow import Collect, Context, Freshness, Graph, Run
from flow.testing import run_virtual
from graphs.bench.staleness.closed_form import Rates, mean_lag_by_step, mean_lag_of_run


@dataclass
class Trainer:
    """Takes as long as the rates say, and notes the lags of each step."""

    rates: Rates
    lags: list[list[int]] = field(default_factory=lambda: [[]])

    async def add(self, value: Any, context: Context) -> None:
        assert context.lag is not None
        self.lags[-1].append(context.lag)
        await asyncio.sleep(self.rates.add_s)

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(self.rates.finish_s)
        self.lags.append([])
        return len(self.lags)


def lags_of_the_engine(rates: Rates, steps: int, seed: int = 0) -> list[list[int]]:
    """The engine's lags by step. The first members are shorter, so that the others begin one after another, evenly spaced."""
    numbers = itertools.count()

    async def play(value: Any, context: Context) -> Any:
        number = next(numbers)
        await asyncio.sleep(rates.member_s * (number + 1) / rates.places if number < rates.places else rates.member_s)
        return value

    async def load(value: int, version: int) -> None:
        await asyncio.sleep(rates.load_s if version else 0.0)

    graph, trainer = Graph("pipeline"), Trainer(rates)
    weights = graph.latest("weights", int, load=load)
    source = graph.source("tasks", itertools.count())
    members = graph.repeat("members", source, n=rates.group_size)
    played = graph.stage("play", play, workers=rates.places, reads=weights)
    groups = graph.group("groups", played, missing="drop")
    sink = graph.sink("trainer", trainer, collect=Collect(rates.groups_per_step, steps))
    source >> members >> played >> groups >> sink
    graph.feedback(sink, weights, initial=0, freshness=Freshness(rates.depth))
    run_virtual(Run(graph.build(quiet=True), stall_s=None).finish(), seed=seed)
    return trainer.lags[:steps]


def mean(lags: list[int]) -> float:
    return sum(lags) / len(lags)


ENGINE_BOUND = Rates(places=12, group_size=2, groups_per_step=4, depth=4, member_s=1.0, add_s=0.01, finish_s=0.02, load_s=0.01)
TRAINER_BOUND = Rates(places=24, group_size=2, groups_per_step=4, depth=2, member_s=1.0, add_s=0.1, finish_s=0.3, load_s=0.05)
TICKETS_BOUND = Rates(places=40, group_size=2, groups_per_step=4, depth=2, member_s=5.0, add_s=0.01, finish_s=0.02)


@pytest.mark.parametrize(
    ("rates", "lag"),
    [
        # 6 groups at work. While one is played, half an interval for its second member, and a step: 6.74 intervals, so 7.
        (ENGINE_BOUND, 6 / 4),
        (TRAINER_BOUND, 2.0),
        (TICKETS_BOUND, 2.0),
    ],
    ids=["engine", "trainer", "tickets"],
)
def test_the_mean_lag_is_known_by_hand(rates: Rates, lag: float):
    assert rates.mean_lag == lag
    assert [mean(step) for step in lags_of_the_engine(rates, 40)[20:]] == [lag] * 20


rates_of_pipelines = st.builds(
    Rates,
    places=st.integers(1, 40),
    group_size=st.integers(1, 4),
    groups_per_step=st.integers(1, 6),
    depth=st.integers(0, 6),
    member_s=st.just(1.0),
    add_s=st.floats(0.001, 0.2),
    finish_s=st.floats(0.001, 1.0),
    load_s=st.floats(0.001, 1.0),
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(rates_of_pipelines, st.integers(0, 1000))
def test_every_step_of_a_full_pipeline_has_the_mean_lag_of_the_closed_form(rates: Rates, seed: int):
    assume(well_apart(rates))
    found = lags_of_the_engine(rates, 80, seed)
    assert [mean(step) for step in found[60:]] == [pytest.approx(rates.mean_lag, abs=1e-9)] * 20
    assert all(lag <= min(step, rates.depth) for step, lags in enumerate(found) for lag in lags)


def well_apart(rates: Rates) -> bool:
    """Whether no two things happen at one moment, where their order is nobody's, it fills in 60 steps, and loads are short."""
    until_s = rates.ready_s + rates.add_s + rates.finish_s + rates.load_s
    share = until_s / rates.interval_s % 1.0
    engine_s = rates.groups_per_step * rates.interval_s
    alike = 0.8 < rates.trainer_s / engine_s < 1.2
    return 0.01 < share < 0.99 and not alike and rates.load_s < 0.9 * max(rates.trainer_s, engine_s)


def test_a_run_from_its_beginning_is_younger_since_nothing_is_older_than_version_0():
    """Where the tickets bind the engine has lags 0, 1, 2, 2, ..., the mean of which is depth - depth*(depth+1)/(2*steps)."""
    assert [mean(step) for step in lags_of_the_engine(TICKETS_BOUND, 10)] == mean_lag_by_step(TICKETS_BOUND, 10)
    assert mean_lag_of_run(TICKETS_BOUND, 10) == pytest.approx(2 - 2 * 3 / (2 * 10))

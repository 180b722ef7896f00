"""What is read of a trace, against durations that are known: the graph sleeps for them in virtual time, to the microsecond."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from flow import Collect, Context, Drop, Freshness, Graph, Plan, Retry, Run
from flow.testing import run_virtual
from flow.trace import PerfettoWriter, Trace, read_trace
from graphs.bench.model.declared import line_of
from graphs.bench.model.event_model import Model
from graphs.bench.model.measured import judged, measured_times
from graphs.bench.model.spec import Drawn

TIMES = Drawn("exponential", {"play": 1.0, "score": 0.25, "add": 0.1, "finish": 0.5, "load": 0.2}, failing=0.0, seed=3)
STEPS, BATCH, SIZE = 6, 2, 3


class Failed(Exception):
    """Was told to fail."""


class Trainer:
    """Sleeps for every item and at the end of a step."""

    def __init__(self, times: Drawn) -> None:
        self.times, self.steps = times, 0

    async def add(self, value: int, context: Context) -> None:
        await asyncio.sleep(self.times.seconds("add", context.path))

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(self.times.seconds("finish", (self.steps,)))
        self.steps += 1
        return self.steps


def graph_of(fails: Callable[[tuple[int, ...], int], bool] = lambda path, retry: False, idle_s: float = 0.0) -> Graph:
    """Training in sleeps. ``idle_s``: that a stage takes over its work before it is noted, to see that ratios fall."""

    async def play(value: int, context: Context) -> int:
        await asyncio.sleep(TIMES.seconds("play", context.path, context.retry))
        if fails(context.path, context.retry):
            raise Failed
        return value

    async def score(value: object, context: Context) -> int:
        await asyncio.sleep(TIMES.seconds("score", context.path))
        return 0

    async def load(value: int, version: int) -> None:
        if version:
            await asyncio.sleep(TIMES.seconds("load", (version,)))

    graph = Graph("played")
    weights = graph.latest("weights", int, load=load)
    source = graph.source("source", itertools.count())
    members = graph.repeat("members", source, n=SIZE)
    plays = graph.stage("play", play, workers=4, reads=weights, on_error=Drop(most=10**6, of=10**6), budget=None)
    groups = graph.group("groups", plays, missing=Retry(1, then="drop"), budget=None)
    scores = graph.stage("score", score, workers=2)
    sink = graph.sink("trainer", Trainer(TIMES), collect=Collect(BATCH, steps=STEPS))
    source >> members >> plays >> groups >> scores >> sink
    graph.feedback(sink, weights, initial=0, freshness=Freshness(max_lag=1))
    return graph


def traced(graph: Graph, path: Path) -> tuple[Plan, Trace]:
    plan = graph.build(quiet=True)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        with PerfettoWriter(path, clock=lambda: int(loop.time() * 1e9)) as recorder:
            await Run(plan, recorder=recorder, stall_s=None).finish()

    run_virtual(run(), seed=0)
    return plan, read_trace(path)


def test_every_duration_is_read_as_it_was(tmp_path: Path) -> None:
    _, trace = traced(graph_of(), tmp_path / "run.pftrace")
    found = measured_times(trace)
    wanted = {
        **{("play", (n, m), 0): TIMES.seconds("play", (n, m)) for n in range(STEPS * BATCH) for m in range(SIZE)},
        **{("score", (n,), 0): TIMES.seconds("score", (n,)) for n in range(STEPS * BATCH)},
        **{("add", (n,), 0): TIMES.seconds("add", (n,)) for n in range(STEPS * BATCH)},
        **{("finish", (step,), 0): TIMES.seconds("finish", (step,)) for step in range(STEPS)},
    }
    assert {key: found.table[key] for key in wanted} == pytest.approx(wanted, abs=1e-6)
    loads = {key: seconds for key, seconds in found.table.items() if key[0] == "load" and key[1] != (0,)}
    assert loads == pytest.approx({key: TIMES.seconds("load", key[1]) for key in loads}, abs=1e-6)
    assert sorted(found.trained) == [(n,) for n in range(STEPS * BATCH)]
    assert found.failed == set()


def test_the_model_with_times_that_were_read_is_the_model_with_those_that_were_drawn(tmp_path: Path) -> None:
    plan, trace = traced(graph_of(), tmp_path / "run.pftrace")
    drawn = Model(line_of(plan), TIMES).run()
    found = judged(plan, trace)
    assert found.model.seconds == pytest.approx(drawn.seconds, abs=1e-5)
    assert found.model.trained == drawn.trained
    assert found.ratio == pytest.approx(drawn.seconds / found.measured.run_s, abs=1e-6)
    assert 0.97 <= found.ratio <= 1.03  # what the engine itself gives in virtual time, see tests/bench/engine_efficiency.py


def test_attempts_that_failed_fail_in_the_model_too_and_take_what_they_took(tmp_path: Path) -> None:
    plan, trace = traced(graph_of(lambda path, retry: path == (3, 1) and retry == 0), tmp_path / "run.pftrace")
    found = judged(plan, trace)
    assert found.measured.failed == {("play", (3, 1), 0)}
    assert found.measured.seconds("play", (3, 1), 1) == pytest.approx(TIMES.seconds("play", (3, 1), 1), abs=1e-6)
    assert len(found.model.trained) == STEPS * BATCH
    assert not found.model.dropped


def test_what_a_run_loses_between_its_stages_makes_its_ratio_fall(tmp_path: Path) -> None:
    """A single worker where the plan says four: the attempts take what they took, and wait for each other."""
    narrow = graph_of().with_("play", workers=1)
    _, trace = traced(narrow, tmp_path / "run.pftrace")
    assert judged(graph_of().build(quiet=True), trace).ratio < 0.6
    assert judged(narrow.build(quiet=True), trace).ratio > 0.97


def test_a_trace_with_groups_that_were_dropped_is_refused(tmp_path: Path) -> None:
    plan, trace = traced(graph_of(lambda path, retry: path == (3, 1)), tmp_path / "run.pftrace")
    with pytest.raises(ValueError, match=r"one run that finished its steps and dropped nothing, got played"):
        judged(plan, trace)


def test_a_node_without_any_time_is_told_and_what_was_not_done_takes_its_mean(tmp_path: Path) -> None:
    _, trace = traced(graph_of(), tmp_path / "run.pftrace")
    found = measured_times(trace)
    scores = [seconds for (node, _, _), seconds in found.table.items() if node == "score"]
    assert found.seconds("score", (10**6,)) == pytest.approx(sum(scores) / len(scores))
    with pytest.raises(LookupError, match="expected a time of other in the trace of the run, got none"):
        found.seconds("other", (0,))

"""What bounds a graph, on runs in virtual time whose bottleneck is known; ``tests/bench/verdict_table.py`` has more of them."""

import asyncio
import re
import statistics
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from bottlenecks import GROUPS, KINDS, MEMBERS, STEPS, WORKERS, World, drawn, gains, graph_of, is_right, rate, said, traced

from flow import Context, Graph
from flow.explain import GraphVerdict, Verdict, _explain, explain
from flow.explain._apart import apart
from flow.explain._links import Links
from flow.explain._model import Model
from flow.explain._path import Paths
from flow.explain._permits import alone
from flow.explain._pieces import Wait
from flow.explain._replay import seconds_a_step
from flow.testing import Collected, simulate
from flow.trace import PerfettoWriter, Trace, read_trace

pytestmark = pytest.mark.slow

SEEDS = {"pool judge": 1, "pool tools": 2}
"""Runs in which a pool limits by far more than the nodes that take its units; the first will do for all else."""


@cache
def run(kind: str, seed: int = 0) -> tuple[Trace, Verdict, float]:
    """Trace, verdict and steps a second of a run."""
    with TemporaryDirectory() as folder:
        trace, per_second = traced(drawn(kind, seed), Path(folder) / "run.pftrace")
    return trace, explain(trace), per_second


def graph(kind: str, seed: int = 0) -> GraphVerdict:
    return run(kind, seed)[1].graphs[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_bottleneck_of_a_run_is_named(kind: str) -> None:
    assert said(graph(kind, SEEDS.get(kind, 0)).bound) == kind.removeprefix("pool ")


@pytest.mark.parametrize("kind", ["credit", "tickets"])
def test_what_is_named_is_what_an_experiment_finds_and_gains_what_was_said(kind: str) -> None:
    """The run is made again with each lever widened."""
    _, verdict, per_second = run(kind)
    bound, gained = verdict.graphs[0].bound, gains(drawn(kind, 0), per_second)
    assert bound is not None
    assert is_right(said(bound), gained)
    assert bound.gain == pytest.approx(gained[said(bound)], abs=0.1)
    assert bound.most is not None
    assert bound.most >= bound.gain


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_what_a_pool_would_bring_whose_permits_are_taken_inside_is_what_an_experiment_finds(seed: int) -> None:
    """And what else would, under the same pool. Before the times held were known it was told 0.16 too much, on average."""
    _, verdict, per_second = run("pool tools", seed)
    found, gained = verdict.graphs[0], gains(drawn("pool tools", seed), per_second)
    assert found.bound is not None
    told = {said(lever): lever.gain for lever in (found.bound, *found.runners_up)}
    assert "tools" in told
    assert told == pytest.approx({name: gained[name] for name in told}, abs=0.07)


def test_a_pool_tells_how_full_it_was_because_of_whose_permits() -> None:
    world = drawn("pool tools", 2)
    (use,) = graph("pool tools", 2).pools
    assert (use.name, use.units) == ("tools", world.pools["tools"])
    spent = dict.fromkeys(world.needs, 0.0)
    for index in range(STEPS * GROUPS):
        spent["score"] += world.seconds("score", (index,))
        spent["play"] += sum(world.seconds("play", (index, member)) for member in range(MEMBERS))
    length = graph("pool tools", 2).seconds
    # More is begun than the last step takes, so the run held at least what its steps needed.
    assert use.permits.keys() == spent.keys()
    assert all(use.permits[node] * use.units * length >= 0.999 * seconds for node, seconds in spent.items())
    assert sum(use.permits.values()) == pytest.approx(use.held, abs=0.01)
    assert 0.9 < use.held <= 1.001
    (engine,) = graph("pool engine").pools
    assert engine.held > 0.8
    assert engine.permits == {}


def test_a_permit_that_a_task_of_its_own_holds_counts_and_its_wait_holds_the_work_up_where_nothing_else_goes_on(
    tmp_path: Path,
) -> None:
    """As of tools in the process of an environment: four workers and one unit for a second each, so two halve the time."""

    def line(units: int) -> Graph:
        graph = Graph("line", pools={"desk": units})

        async def held(context: Context) -> None:
            async with context.permit("desk"):
                await asyncio.sleep(1.0)

        async def work(value: int, context: Context) -> int:
            await asyncio.create_task(held(context))
            return value

        _ = graph.source("numbers", range(40)) >> graph.stage("work", work, workers=4) >> graph.sink("end", Collected())
        return graph

    with PerfettoWriter(tmp_path / "run.pftrace", clock=lambda: 0) as writer:
        once = simulate(line(1), recorder=writer)
    twice = simulate(line(2))
    found = explain(read_trace(tmp_path)).graphs[0]
    assert found.bound is not None
    desk = next(lever for lever in (found.bound, *found.runners_up) if (lever.kind, lever.name) == ("pool", "desk"))
    assert desk.gain == pytest.approx(once.seconds / twice.seconds - 1, abs=0.05)
    # Of 4 x 40 s of workers 40 are work, and at the end three have nothing left for 1, 2 and 3 s.
    assert found.stages[1].pool == pytest.approx((160 - 40 - 6) / 160, abs=0.001)
    (use,) = found.pools
    assert use.permits == {"work": pytest.approx(1.0, abs=0.01)}


def test_a_wait_beside_the_row_counts_only_while_nothing_else_is_open_there() -> None:
    waits = [Wait("pool", "desk", 10, 30), Wait("pool", "desk", 40, 60)]
    beside = [(10, 35), (20, 25), (40, 60), (40, 60)]
    assert alone(waits, beside) == [Wait("pool", "desk", 10, 20), Wait("pool", "desk", 25, 30)]


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_the_time_is_on_the_critical_path_once(kind: str) -> None:
    found = graph(kind)
    assert sum(part.share for part in found.path) == pytest.approx(1.0)
    assert not [part for part in found.path if part.kind in ("room", "hand-over") and part.share > 0.05]


@pytest.mark.parametrize("kind", KINDS)
def test_the_idle_time_of_the_sink_is_what_it_waited_and_all_of_it_has_a_cause(kind: str) -> None:
    found = graph(kind)
    sink = next(stage for stage in found.stages if stage.name == found.sink)
    assert found.idle == pytest.approx(sink.input, abs=0.02)
    assert sum(part.share for part in found.idle_by) == pytest.approx(found.idle)


def test_a_sink_that_waits_does_so_because_of_who_is_slow_and_not_because_of_its_neighbour() -> None:
    """``score`` is slow, two nodes before the sink: ``credit`` and ``pack`` wait for it as the sink does."""
    first = graph("score").idle_by[0]
    assert (first.kind, first.name) == ("work", "score")
    assert first.share > 0.3


def test_shares_of_a_node_are_those_that_the_run_itself_tells() -> None:
    summary = simulate(graph_of(drawn("play", 0))[0], 0).summary
    for stage in graph("play").stages:
        told = summary.nodes[stage.name].shares
        assert stage.work == pytest.approx(told["work"], abs=0.01)
        assert stage.ticket == pytest.approx(told["ticket"], abs=0.01)
        assert stage.work + stage.input + stage.ticket + stage.pool + stage.room == pytest.approx(1.0)


def test_steps_and_their_time_are_those_of_the_sink() -> None:
    found, per_second = graph("trainer"), run("trainer")[2]
    assert (found.sink, found.steps) == ("trainer", STEPS)
    assert found.steps / found.seconds == pytest.approx(per_second, rel=0.02)
    assert {stage.name: stage.workers for stage in found.stages}.items() >= WORKERS.items()


def test_the_way_of_a_step_leads_from_its_beginning_to_its_end() -> None:
    found = graph("tickets")
    assert sum(leg.seconds for leg in found.way) == pytest.approx(found.step, rel=0.01)
    names = [leg.name for leg in found.way if leg.seconds > 0]
    assert names[-1] == "trainer"
    assert "play" in names
    played = next(leg for leg in found.way if leg.name == "play")
    assert re.fullmatch(r"\d+\.[0-3]", played.item)


def test_groups_that_wait_for_one_member_are_counted_with_who_it_was() -> None:
    late = graph("tickets").stragglers
    assert late is not None
    assert late.groups >= STEPS * 4
    assert 0 < late.waiting < late.groups
    assert late.worst == tuple(sorted(late.worst, key=lambda pair: -pair[1]))
    assert late.worst[0][1] * late.waiting >= late.seconds


def test_slow_work_has_the_quantiles_of_its_slices() -> None:
    trace, verdict, _ = run("play")
    lengths = sorted((s.end_ns - s.start_ns) / 1e9 for s in trace.slices if s.name == "play" and s.end_ns is not None)
    row = next(row for row in verdict.slow if row.name == "play")
    assert (row.count, row.most) == (len(lengths), lengths[-1])
    assert row.seconds == pytest.approx(sum(lengths))
    assert row.p50 == pytest.approx(statistics.median(lengths), rel=0.05)
    assert row.p90 == pytest.approx(statistics.quantiles(lengths, n=10)[-1], rel=0.1)


def test_compilations_after_the_first_step_are_told_apart() -> None:
    row = run("compile")[1].compiled[0]
    compiles = drawn("compile", 0).compiles
    later = [seconds for call, seconds in compiles.items() if call >= GROUPS]
    assert (row.where, row.count, row.again) == ("trainer", 4, len(later))
    assert row.seconds == pytest.approx(sum(compiles.values()))
    assert row.again_s == pytest.approx(sum(later))


def test_twice_the_speed_of_what_does_not_bound_brings_next_to_nothing() -> None:
    assert all(lever.gain < 0.1 for lever in graph("trainer").runners_up)


def test_a_run_made_again_with_a_wider_lever_is_the_same_work() -> None:
    """What the truth of these tests rests on: nothing but the lever differs."""
    world = drawn("source", 3)
    assert rate(world) == rate(world)
    assert rate(World(**{**vars(world), "wide": {"source": 1.0}})) == rate(world)


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_done_once_more_on_paper_takes_as_long_as_it_did(kind: str) -> None:
    trace, _, per_second = run(kind)
    parts = apart(trace)
    execution = parts.executions[0]
    links = Links(execution, parts.versions)
    model = Model(execution, links, Paths(execution, links), execution.pieces)
    assert seconds_a_step(model) == pytest.approx(1 / per_second, rel=0.1)


@pytest.mark.parametrize("kind", ["source", "score", "tickets", "load"])
def test_the_last_steps_of_a_long_run_are_enough(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a run of a few hundred pieces of work were a long one: half of them are done again."""
    trace = run(kind)[0]
    monkeypatch.setattr(_explain, "_MOST_TASKS", 400)
    assert said(explain(trace).graphs[0].bound) == kind


@pytest.mark.soak
def test_hundreds_of_runs_are_judged_right_in_95_of_100(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    from verdict_table import main

    monkeypatch.setattr(sys, "argv", ["verdict_table.py"])
    share = main()
    with capsys.disabled():
        assert share >= 0.95

"""Which versions are evaluated, what waits meanwhile, and what a stop or a kill of workers leaves."""

import asyncio
import math

import pytest

from flow import Collect, Context, Graph, Run, StageFailed, Stalled
from flow.testing import run_virtual
from flow.trace import PerfettoWriter, read_trace
from stages.records import Task, Weights

TASKS = [Task(f"t{number}", "?") for number in range(6)]
"""Of the evaluation."""
TURNS = 8
"""Units of its engine."""


def test_every_due_version_is_evaluated_whole_and_the_last_one_too(make_world):
    """S40: nothing is left out of the denominator; versions 0, 2, 4 and the last, 5."""
    world = make_world(steps=5, every=2, fails={"t0"})
    summary = run_virtual(world.run().finish())
    assert (summary.status, summary.balanced) == ("completed", True)
    assert [row["version"] for row in world.rows] == [0, 2, 4, 5]
    # t2 and t4 are right in both attempts, t0 fails: 4 of 12.
    assert {row["heldout"] for row in world.rows} == {4 / 12}
    assert {row["heldout_pass@2"] for row in world.rows} == {2 / 6}
    assert {row["heldout_failed"] for row in world.rows} == {2}
    assert [(version, weights) for _, version, weights in world.told] == [(0, 0), (2, 2), (4, 4), (5, 5)]


@pytest.mark.parametrize(("first", "every", "wanted"), [(False, 3, [3, 6]), (True, 10, [0, 6]), (False, 4, [4, 6])])
def test_which_versions_are_due(make_world, first, every, wanted):
    world = make_world(steps=6, every=every, first=first)
    assert world.pinned.most == len(wanted)
    run_virtual(world.run().finish())
    assert [row["version"] for row in world.rows] == wanted


def test_nothing_is_evaluated_and_no_swap_waits_where_none_is_due(make_world):
    world = make_world(every=None)
    graph = Graph("plain")
    cell = graph.latest("weights", Weights, load=world.pinned.swap)

    class Trainer:
        def add(self, value: int, context: Context) -> None:
            """Nothing to learn."""

        def finish(self, context: Context) -> Weights:
            world.steps += 1
            return world.weights()

    trainer = graph.sink("trainer", Trainer(), collect=Collect(1, 3))
    _ = graph.source("prompts", range(9)) >> trainer
    graph.feedback(trainer, cell, initial=world.weights)
    run_virtual(Run(graph.build()).finish())
    assert (world.version, world.pinned.most) == (3, 0)


@pytest.mark.parametrize("max_lag", [0, 2])
def test_the_next_swap_waits_and_training_of_the_same_version_goes_on(make_world, max_lag, tmp_path):
    """Evaluations take 12 s of a quota of 3, a step of training less: the swap waits, in the trace and in the row."""
    world = make_world(max_lag=max_lag, heldout_s={task.id: 3.0 for task in TASKS})
    with PerfettoWriter(tmp_path / "trace") as recorder:
        run_virtual(world.run(recorder=recorder).finish())
    loads = [int(event.split()[1]) for _, event in world.events if event.startswith("load")]
    row = world.rows[1]
    version, following = int(row["version"]), loads[loads.index(row["version"]) + 1]
    assert (version, following) == ((2, 3) if max_lag == 0 else (3, 4))
    assert row["heldout_s"] >= 12 * 3 / 3
    # Nothing but the evaluation stands between the step that made the following version and its load.
    assert row["sync_wait_s"] == pytest.approx(world.at(f"load {following}") - world.at(f"step {following}"), abs=1e-6)
    assert row["sync_wait_s"] > 5
    begun, over = world.at(f"load {version}"), world.at(f"load {following}")
    trained = [at for at, event in world.events if event == "train" and begun < at < over]
    assert len(trained) >= 16, "a whole step of training episodes was made while the version was evaluated"
    trace = read_trace(tmp_path / "trace")
    waits = [(each.end_ns - each.start_ns) / 1e9 for each in trace.slices if each.name == "sync wait"]
    assert any(wait == pytest.approx(row["sync_wait_s"], abs=1e-3) for wait in waits)


def test_the_quota_is_what_it_gets_and_all_it_gets(make_world):
    """Training wants far more turns than there are. Evaluation has its three at once, and training the other five."""
    world = make_world(steps=5, every=2, quota=3, heldout_s={task.id: 4.0 for task in TASKS})
    run_virtual(world.run().finish())
    assert world.most["heldout"] == 3
    assert world.most["train"] == TURNS
    # 12 episodes of 4 s by threes are 16 s where a unit is free at once, and each of 24 turns waits for at most one of 1 s.
    assert max(row["heldout_s"] for row in world.rows) <= 16 + 8


def test_a_quota_is_served_before_training_by_where_the_branch_stands(make_world):
    """Pools serve what is further down first; so the branch must be deeper than the episodes of training."""
    depths = make_world().graph.build().spec.depths()
    assert depths["heldout_episodes"] > depths["episodes"]


def test_an_evaluation_past_its_deadline_is_given_up_counted_and_the_swap_goes_on(make_world):
    """One episode hangs. What it had is no score: a part of the tasks would be another evaluation."""
    world = make_world(steps=3, every=1, first=False, deadline_s=20, heldout_s={"t3": math.inf})
    summary = run_virtual(world.run().finish())
    assert summary.status == "completed"
    assert [row["version"] for row in world.rows] == [1, 2, 3]
    assert [row["heldout"] for row in world.rows] == [None, None, None]
    assert [row["heldout_given_up"] for row in world.rows] == [1, 2, 3]
    assert "the evaluation of version 1 was given up, 2 episodes short" in world.rows[0]["warning"]
    assert world.rows[0]["heldout_failed"] == 2
    assert world.at("load 2") - world.at("load 1") == pytest.approx(20, abs=0.1)
    assert [score for score, _, _ in world.told] == [None, None, None]


def test_the_stall_report_names_the_evaluation_that_a_swap_waits_for(make_world):
    """W1, W3."""
    world = make_world(steps=3, every=2, first=False, heldout_s={task.id: math.inf for task in TASKS})
    with pytest.raises(Stalled) as caught:
        run_virtual(world.run(stall_s=60).finish())
    assert "cell weights   version 3 is being loaded" in str(caught.value)
    assert "waits for the evaluation of version 2" in str(caught.value)


@pytest.mark.parametrize("at", [0.5, 3.0, 9.0])
@pytest.mark.parametrize("stop", ["drain", "suspend", "abort"])
def test_a_stop_in_the_middle_of_an_evaluation_leaves_nothing_behind(make_world, stop, at):
    world = make_world(heldout_s={task.id: 3.0 for task in TASKS})
    run = world.run()

    async def main() -> str:
        task = asyncio.create_task(run.finish())
        await asyncio.sleep(at)
        assert world.pinned.running is not None
        {"drain": run.drain, "suspend": run.suspend, "abort": lambda: run.abort(RuntimeError("enough"))}[stop]()
        try:
            return (await task).status
        except RuntimeError as error:
            return str(error)
        finally:
            assert asyncio.get_running_loop().time() < 200
            assert len(asyncio.all_tasks()) == 1

    assert run_virtual(main()) == {"drain": "drained", "suspend": "suspended", "abort": "enough"}[stop]
    if stop == "drain":
        assert world.pinned.running is None, "what was begun is counted to its end"
        assert all(row["heldout"] is not None for row in world.rows)


@pytest.mark.parametrize("seed", range(8))
def test_workers_that_are_killed_change_no_score(make_world, seed):
    """Each episode is counted once, whatever was begun again; the pin holds."""
    world = make_world(steps=4, every=2, max_lag=1)
    run_virtual(world.run().finish(), seed=seed, kill=0.05)
    assert [(row["version"], row["heldout"], row["heldout_failed"]) for row in world.rows] == [
        (0, 0.5, 0), (2, 0.5, 0), (4, 0.5, 0)
    ]  # fmt: skip


def test_a_version_that_is_overtaken_is_evaluated_at_the_next_that_is_loaded(make_world):
    """Late evaluations of a fast trainer: what is due and was skipped is made up for, and the last one never fails to come."""
    world = make_world(steps=12, max_lag=3, every=2, heldout_s={task.id: 6.0 for task in TASKS})
    summary = run_virtual(world.run().finish())
    versions = [row["version"] for row in world.rows]
    assert summary.status == "completed"
    assert versions[0] == 0
    assert versions[-1] == 12
    assert versions == sorted(set(versions))


def test_tokens_of_another_version_are_refused_by_the_count(make_world):
    """Whoever loads weights past the pin is found out, not averaged in."""
    world = make_world(steps=3, every=2, first=False, heldout_s={task.id: 4.0 for task in TASKS})

    async def main() -> None:
        task = asyncio.create_task(world.run().finish())
        await asyncio.sleep(6.5)
        assert world.pinned.is_of(2)
        world.version = 9
        await task

    with pytest.raises(Exception, match=r"expected held-out tokens of version 2 alone; got some of 9 in task 't\d'"):
        run_virtual(main())


def test_whoever_is_told_of_a_score_may_end_the_run(make_world):
    """As a gate does: the run fails with that error, and nothing is left."""
    world = make_world(every=2)
    world.stops_at = 4

    async def main() -> None:
        try:
            await world.run().finish()
        finally:
            assert len(asyncio.all_tasks()) == 1

    with pytest.raises(StageFailed, match=r"stage 'heldout_scores' failed .*ArithmeticError: the score fell"):
        run_virtual(main())
    assert [row["version"] for row in world.rows] == [0, 2, 4], "its row is told before"

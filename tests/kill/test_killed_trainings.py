"""A training that is killed anywhere and started again equals one that never was: figures, episodes, parameters, to the bit.

Real processes, the real command, SIGKILL. What is equal is ``equal_runs.py``; what is killed is ``calculator_child.py``: a
warm start, an evaluation, GRPO with tools, members that fail and evaluations beside it, and another evaluation.
"""

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from equal_lives import check_equal, check_executions

from flow.testing import Process, Start


@pytest.mark.slow
def test_a_training_that_is_killed_and_preempted_one_after_another_equals_one_that_never_was(
    start: Start, unkilled: Process, tmp_path: Path
) -> None:
    """P1 to P6, S92, S94, S95, S96, S100: killed before an episode is noted, killed after a commit, SIGTERM in mid-step."""
    for die in (("journal.append", 100), ("commit.renamed", 1)):
        life = start(tmp_path, die=die)
        assert life.wait() == -9, f"{die}: {life.output}"
    begun = len(life.told("begun"))
    life = start(tmp_path)
    life.wait_for(lambda: len(life.told("begun")) > begun + 4, "episodes of a step")
    life.kill(signal.SIGTERM)
    assert life.wait() == 130, life.output
    assert "go on with: headrace resume runs/it" in life.output
    life = start(tmp_path, "resume", "runs/it")
    assert life.wait() == 0, life.output
    check_equal(life, unkilled)
    check_executions(life, unkilled, kills=2)


@pytest.mark.soak
def test_trainings_that_are_killed_early_midway_or_late_at_a_point_of_each_kind_equal_one_that_never_was(
    start: Start, unkilled: Process, tmp_path: Path
) -> None:
    """P1 to P5, S92, S94, S95, S96, S100."""
    reached = Counter(unkilled.points)
    points = [(point, nth) for point, most in reached.items() for nth in sorted({1, 1 + most // 2, most})]
    for point, nth in points:
        folder = tmp_path / f"{point}-{nth}"
        assert start(folder, die=(point, nth)).wait() == -9
        life = start(folder)
        assert life.wait() == 0, f"{point} {nth}: {life.output}"
        check_equal(life, unkilled)
        check_executions(life, unkilled, kills=1)
    for point, count in Counter(point for point, _ in points).items():
        print(f"{point:20} {count:4} kills, all equal to the training that was not killed")


@pytest.mark.soak
def test_a_training_that_is_killed_at_each_point_of_going_on_with_it_equals_one_that_never_was(
    start: Start, unkilled: Process, tmp_path: Path
) -> None:
    """P6: while rows behind the commit are taken back, file by file, and while the moment is put back."""
    before = (("commit.renamed", 6), ("swap.begin", 2))
    again = (("rows.moved", 1), ("rows.cut", 1), ("rows.cut", 1))
    for die in (*before, *again, ("resume.begin", 1), ("resume.states", 1), ("resume.restored", 1)):
        life = start(tmp_path, die=die)
        assert life.wait() == -9, f"{die}: {life.output}"
    life = start(tmp_path)
    assert life.wait() == 0, life.output
    check_equal(life, unkilled)
    check_executions(life, unkilled, kills=2)


@pytest.mark.soak
def test_trainings_that_are_killed_at_random_times_again_and_again_equal_one_that_never_was(
    start: Start, unkilled: Process, tmp_path: Path
) -> None:
    """P6."""
    chance, kills, began = random.Random(0), 0, time.monotonic()
    assert start(tmp_path / "whole").wait() == 0
    whole_s = time.monotonic() - began
    for number in range(8):
        for _ in range(4):
            life = start(tmp_path / f"{number}")
            time.sleep(0.7 * whole_s * chance.random())  # what goes on has less before it
            life.kill()
            kills += life.wait() == -9
        life = start(tmp_path / f"{number}")
        assert life.wait() == 0, life.output
        check_equal(life, unkilled)
        check_executions(life, unkilled, kills=kills)
    print(f"{kills} kills at random times in 8 trainings, all equal to the training that was not killed")
    assert kills > 16

"""A run of flow alone, killed in real processes: quick enough to die at every point that it reaches."""

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from flow.testing import Process, Start, points_of
from graphs.bench.recovery.executions import executed_twice, made_again, trained

KINDS = {
    "commit.begin", "commit.taken", "commit.moment", "commit.saved", "commit.manifest", "commit.renamed", "commit.retained",
    "swap.begin", "swap.loaded", "journal.append", "journal.appended", "journal.cut",
}  # fmt: skip


def check_equal(life: Process, unkilled: Process) -> None:
    """Nothing trained differs, no attempt was executed twice, and none that the journal had was made again."""
    assert trained(life) == trained(unkilled)
    assert set(life.told("completed")) == set(unkilled.told("completed"))
    assert executed_twice(life) == {}
    assert life.told("noted")
    assert made_again(life, after="noted") == []


def killed_at(die: tuple[str, int], start: Start, folder: Path, unkilled: Process) -> None:
    assert start(folder, die=die).wait() == -9, die
    life = start(folder)
    assert life.wait() == 0, life.output
    check_equal(life, unkilled)


@pytest.mark.slow
def test_a_run_that_is_killed_at_a_point_of_each_kind_ends_as_one_that_never_was(
    start_summing: Start, unkilled_summing: Process, tmp_path: Path
) -> None:
    """P1 to P4, S92, S94, S95, S96, S100: SIGKILL, then the same command again."""
    reached = Counter(unkilled_summing.points)
    assert reached.keys() >= KINDS
    for number, (point, most) in enumerate(reached.items()):
        killed_at((point, 1 + number * 5 % most), start_summing, tmp_path / point, unkilled_summing)


@pytest.mark.soak
def test_a_run_that_is_killed_at_any_point_it_reaches_ends_as_one_that_never_was(
    start_summing: Start, unkilled_summing: Process, tmp_path: Path
) -> None:
    """P1 to P4, S92, S94, S95, S96, S100."""
    points = points_of(unkilled_summing)
    for die in points:
        killed_at(die, start_summing, tmp_path / f"{die[0]}-{die[1]}", unkilled_summing)
    for point, count in Counter(point for point, _ in points).items():
        print(f"{point:20} {count:4} kills, all equal to a run that was not killed")


@pytest.mark.slow
@pytest.mark.parametrize("during", ["resume.states", "resume.restored", "swap.loaded", "commit.saved", "commit.renamed"])
def test_a_run_that_is_killed_while_it_is_gone_on_with_and_again_is_gone_on_with_all_the_same(
    start_summing: Start, unkilled_summing: Process, tmp_path: Path, during: str
) -> None:
    """P6: a restore changes nothing of what it reads."""
    for die in (("commit.renamed", 3), (during, 1), (during, 1)):
        life = start_summing(tmp_path, die=die)
        assert life.wait() == -9, life.output
    life = start_summing(tmp_path)
    assert life.wait() == 0, life.output
    check_equal(life, unkilled_summing)


def killed_again_and_again(chance: random.Random, start: Start, folder: Path, unkilled: Process) -> int:
    """Gives how often it was killed before it was over."""
    kills = 0
    for delay_s in [0.03, *(0.12 * chance.random() for _ in range(7))]:
        life = start(folder, str(chance.randint(1, 3)), "0")
        time.sleep(delay_s)
        life.kill()
        kills += life.wait() == -9
    life = start(folder)
    assert life.wait() == 0, life.output
    check_equal(life, unkilled)
    return kills


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_times_again_and_again_ends_as_one_that_never_was(
    start_summing: Start, unkilled_summing: Process, tmp_path: Path
) -> None:
    """P6."""
    chance = random.Random(0)
    kills = [killed_again_and_again(chance, start_summing, tmp_path / f"{number}", unkilled_summing) for number in range(3)]
    assert sum(kills) > 3


@pytest.mark.soak
def test_runs_that_are_killed_at_very_many_random_times_end_as_one_that_never_was(
    start_summing: Start, unkilled_summing: Process, tmp_path: Path
) -> None:
    """P6."""
    chance = random.Random(1)
    kills = [killed_again_and_again(chance, start_summing, tmp_path / f"{number}", unkilled_summing) for number in range(60)]
    print(f"{sum(kills)} kills at random times in {len(kills)} runs, all equal to a run that was not killed")
    assert sum(kills) > 100


@pytest.mark.slow
def test_killed_runs_with_a_lag_train_no_group_twice_and_none_that_is_too_old(start_summing: Start, tmp_path: Path) -> None:
    """P2, P4, F1, S97: no two runs are equal, since it depends on time what is trained; what is promised holds."""
    chance = random.Random(2)
    for number in range(3):
        folder = tmp_path / f"{number}"
        for _ in range(4):
            life = start_summing(folder, "1", "1")
            time.sleep(0.02 + 0.08 * chance.random())
            life.kill()
            life.wait()
        life = start_summing(folder, "1", "1")
        assert life.wait() == 0, life.output
        births = [birth for line in trained(life) for birth, _ in json.loads(line.split(" ")[1])]
        assert len(trained(life)) == 8
        assert len(births) == len(set(births)) == 16
        assert set(life.told("lag")) <= {"0", "1"}
        assert life.told("completed")[-1].endswith("True")


@pytest.mark.slow
def test_of_two_processes_that_go_on_with_one_run_one_is_refused(
    start_summing: Start, unkilled_summing: Process, tmp_path: Path
) -> None:
    first = start_summing(tmp_path, halt=("commit.begin", 1))
    first.wait_point("commit.begin")
    second = start_summing(tmp_path)
    assert second.wait() == 1
    assert "expected nobody else to write, got another process that does" in second.output
    first.kill(signal.SIGCONT)
    assert first.wait() == 0, first.output
    check_equal(first, unkilled_summing)

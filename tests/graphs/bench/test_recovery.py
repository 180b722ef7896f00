"""A training that is killed and gone on with, and what is looked for of one that was."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from flow.testing import Process
from graphs.bench.recovery.executions import executed_twice, made_again, trained
from graphs.bench.recovery.experiment import RECOVERY
from graphs.bench.recovery.interrupted import INTERRUPTIONS, TAKEN, middle_of
from graphs.bench.recovery.left import MARK, children_of, files_in, left_of, partial_in


@pytest.mark.soak
def test_a_training_that_is_killed_ends_as_one_that_nobody_interrupts_and_leaves_nothing():
    """SIGKILL between the end of an episode and its note; the others are for make soak, and for the benchmark."""
    found = RECOVERY.run(RECOVERY.short, lambda done, total, what: None)
    assert [claim for claim in found.claims if claim.holds is not True] == []


@pytest.mark.soak
def test_a_training_that_is_interrupted_at_every_place_ends_as_one_that_nobody_interrupts():
    found = RECOVERY.run(RECOVERY.config(), lambda done, total, what: None)
    assert [claim for claim in found.claims if claim.holds is not True] == []
    assert {row["during"] for row in found.tables[0].rows} == {"rollout", "training", "checkpoint write", "weight sync"}


def process(folder: Path, *lines: str) -> Process:
    (folder / "executions").write_text("".join(f"{line}\n" for line in lines))
    return Process(0, folder, lambda: 0)


def test_an_execution_counts_as_made_again_where_it_begins_behind_the_word(tmp_path: Path):
    told = process(tmp_path, "begun a 0", "begun b 0", "ended a 0", "begun a 1", "begun b 1", "begun b 1", "begun c 0")
    assert made_again(told, "ended") == ["a 1"]
    assert made_again(told, "begun") == ["a 1", "b 1", "b 1"]
    assert made_again(told, "begun", of="b") == ["b 1", "b 1"]
    assert executed_twice(told) == {"b 1": 2}


def test_of_a_step_that_was_trained_twice_the_latest_counts(tmp_path: Path):
    assert trained(process(tmp_path, "trained 1 a", "trained 2 b", "trained 2 c", "trained 3 d")) == ["1 a", "2 c", "3 d"]


def test_a_place_is_the_middle_of_the_passes_in_the_training_not_in_the_warm_start():
    points = ["commit.begin", "commit.begin", TAKEN, "commit.begin", TAKEN, "commit.begin", "commit.begin"]
    assert middle_of(points, "commit.begin") == 4
    assert middle_of(points, TAKEN) == 2


def test_every_part_of_a_training_is_interrupted():
    assert {each.during for each in INTERRUPTIONS} == {"rollout", "training", "checkpoint write", "weight sync"}
    assert sum(each.point == "" for each in INTERRUPTIONS) == 1


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by Linux's /proc")
def test_a_process_that_is_left_is_found_by_the_folder_of_who_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("graphs.bench.recovery.left.GONE_S", 0.05)
    monkeypatch.setenv(MARK, str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        # Between fork and exec it has the environment of this process.
        until = time.monotonic() + 10
        while children_of(tmp_path) != [child.pid] and time.monotonic() < until:
            time.sleep(0.01)
        left, seconds = left_of(tmp_path)
        assert left == [child.pid]
        assert seconds >= 0.05
        assert children_of(tmp_path / "another") == []
    assert left_of(tmp_path)[0] == []


def test_files_that_are_left_are_named_and_half_written_ones_of_a_run_too(tmp_path: Path):
    for name in ("tmp/a/b", "run/checkpoints/000003.part/model/x", "run/checkpoints/000002/moment", "run/config.part"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert files_in(tmp_path / "tmp") == ["a/b"]
    assert partial_in(tmp_path / "run") == ["checkpoints/000003.part", "config.part"]

"""Where a run writes: a folder that is its own."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from graphs.runs.folder import FolderState, RunFolder
from stages.records import Batch, EpisodeRow, Segment, Status, Task


def test_of_two_runs_that_found_a_folder_empty_one_gets_it(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first:
        with pytest.raises(FileExistsError, match=r"expected a new run folder, got .*/run, which has files in it"), second:
            pass
        first.begin("phase")
        first.reported("node", {"step": 1})
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 1
    with pytest.raises(FileExistsError, match="which has files in it; choose another"):
        RunFolder(tmp_path / "run")


def test_the_row_of_a_step_waits_until_it_can_say_what_became_of_its_tasks_and_is_written_whatever_comes(
    tmp_path: Path,
) -> None:
    task, batch = (
        Task("1", "?", source="sums"),
        Batch(0, (), 1.0, (EpisodeRow(Status.FINISHED, 1.0, 2, 1, 0.1, source="sums"),)),
    )
    with RunFolder(tmp_path / "run") as folder:
        folder.begin("phase")
        folder.outcomes.drawn("prompts", [task, task])
        folder.reported("trainer", {"step": 1, "skipped": None, "updates": 1})
        folder.reported("other", {"evaluated": 3})
        folder.outcomes.ended("trainer", [batch], None)
        folder.reported("trainer", {"step": 2, "skipped": None, "updates": 1})  # and then it ends, before the step is complete
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(row.get("step"), row.get("drawn/sums"), row.get("silent/sums")) for row in rows] == [
        (None, None, None), (1, 2, 1), (2, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(("updates", "end"), [(1, "trained"), (0, "update skipped")])
def test_tasks_of_a_step_are_skipped_where_no_update_was_applied_and_only_there(tmp_path: Path, updates: int, end: str) -> None:
    segment = Segment(np.array([1, 2]), np.array([False, True]), np.ones(2, np.float32))
    batch = Batch(0, ((segment,),), 1.0, (EpisodeRow(Status.FINISHED, 1.0, 1, 1, 0.1, source="sums"),))
    with RunFolder(tmp_path / "run") as folder:
        folder.begin("phase")
        folder.outcomes.drawn("prompts", [Task("1", "?", source="sums")])
        folder.reported("trainer", {"step": 1, "skipped": "no_targets", "updates": updates})
        folder.outcomes.ended("trainer", [batch], None)
    assert folder.outcomes.report()["sums"]["ends"] == {end: 1}


def test_a_disk_that_takes_no_rows_is_named_with_what_to_do(tmp_path: Path, full_disk: Callable[[int | None], None]) -> None:
    told = r"expected a disk that takes the rows of a run, got 'File too large'; free some of it, then go on: '.*/run'"
    with RunFolder(tmp_path / "run") as folder:
        folder.begin("phase")
        full_disk(100)
        with pytest.raises(OSError, match=told):
            folder.reported("node", {"warning": "long" * 100})
        full_disk(None)


def test_counts_go_on_in_another_start_and_the_row_of_a_step_under_way_comes_again(tmp_path: Path) -> None:
    """P6. Into a fresh object; what was written after the state was taken is moved aside."""
    task = Task("1", "?", source="sums")
    batch = Batch(0, (), 1.0, (EpisodeRow(Status.FINISHED, 1.0, 2, 1, 0.1, source="sums"),))
    row = {"skipped": None, "updates": 1, "trained_tokens": 5, "lag_mean": 0.5, "lag_max": 2, "loss": float("inf")}

    def step(folder: RunFolder, number: int) -> None:
        folder.outcomes.drawn("prompts", [task])
        folder.reported("trainer", {"step": number, **row})

    with RunFolder(tmp_path / "run") as folder:
        assert folder.begin_attempt() == 0
        folder.begin("phase")
        step(folder, 1)
        folder.outcomes.ended("trainer", [batch], None)
        folder.reported("trainer", {"step": 2, **row})  # and its step is not complete
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(folder.state()), type=FolderState)
        folder.outcomes.ended("trainer", [batch], None)
    with RunFolder(tmp_path / "run", resume=True) as again:
        assert again.begin_attempt(commit=1) == 1
        again.begin("phase")
        again.restore(state)
        step(again, 2)
        again.outcomes.ended("trainer", [batch], None)
        assert (again.steps.count, again.steps.trained_tokens, again.steps.lag_mean, again.steps.lag_max) == (2, 10, 0.5, 2)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["attempt"], row["step"], row["loss"], row["drawn/sums"]) for row in rows] == [
        (0, 1, "inf", 1), (1, 2, "inf", 1),
    ]  # fmt: skip
    moved = [json.loads(line)["row"] for line in (tmp_path / "run" / "superseded.jsonl").read_text().splitlines()]
    assert [(row["attempt"], row["step"]) for row in moved] == [(0, 2)]


def test_a_torn_row_of_starts_counts_and_hides_no_other(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run") as folder:
        folder.begin_attempt()
    with (tmp_path / "run" / "attempts.jsonl").open("ab") as file:
        file.write(b'{"attem')
    with RunFolder(tmp_path / "run", resume=True) as folder:
        assert folder.begin_attempt() == 2
    lines = (tmp_path / "run" / "attempts.jsonl").read_bytes().splitlines()
    assert [line[:12] for line in lines] == [b'{"attempt":0', b'{"attem', b'{"attempt":2']

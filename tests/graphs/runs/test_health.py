"""Rows of health, of graphs in virtual time: each figure against one worked out by hand."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flow import Collect, Context, Failed, Gathered, Graph, Run, Shrink, StageFailed
from flow.testing import run_virtual
from flow.trace import LoopLag
from graphs.runs.errors import in_short
from graphs.runs.folder import RunFolder
from graphs.runs.health import EngineCounts, GroupAges, Health, memory_bytes, memory_limit
from graphs.runs.json_rows import decode
from stages.records import Episode, Status, Task


def episode(status: Status, context: Context) -> Episode:
    return Episode(
        task=Task("a", "?"), birth=context.birth, member=context.member, retry=0, ids=np.zeros(0, np.int32),
        mask=np.zeros(0, bool), logprobs=np.zeros(0, np.float32), versions=np.zeros(0, np.int32), turns=(), messages=(),
        status=status,
    )  # fmt: skip


async def play(task: int, context: Context) -> Episode | Failed[Episode]:
    """The first members take a second, the second ones four; every fourth task runs out of tokens, and one out of time."""
    await asyncio.sleep(1.0 if context.member == 0 else 4.0)
    if task == 5:
        return Failed(episode(Status.TIMED_OUT, context), "timed_out", "too late")
    return episode(Status.TRUNCATED_TURNS if task % 4 == 0 else Status.FINISHED, context)


class Trainer:
    async def add(self, group: Gathered[Episode], context: Context) -> None:
        await asyncio.sleep(0.5)

    async def finish(self, context: Context) -> None:
        pass


def graph() -> Graph:
    made = Graph("g")
    tasks = made.source("tasks", range(8))
    members = made.repeat("members", tasks, n=2)
    episodes = made.stage("episodes", play, workers=4)
    groups = made.group("groups", episodes, missing=Shrink(1))
    trainer = made.sink("trainer", Trainer(), collect=Collect(1))
    tasks >> members >> episodes >> groups >> trainer
    return made


def told(folder: Path, every_s: float, engine: list[EngineCounts] | None = None) -> list[Mapping[str, Any]]:
    async def main(run_folder: RunFolder) -> None:
        counts = None if engine is None else (lambda: engine.pop(0) if len(engine) > 1 else engine[0])
        health = Health(run_folder, every_s, asyncio.get_running_loop().time, counts, LoopLag())
        run = Run(graph().build(quiet=True), watchers=(run_folder, health))
        with health.measuring(run):
            await run.finish()

    with RunFolder(folder / "run") as run_folder:
        run_folder.begin("rl")
        run_virtual(main(run_folder))
    return [decode(line) for line in (folder / "run" / "metrics.jsonl").read_bytes().splitlines()]


def test_rows_come_as_often_as_asked_and_once_at_the_end(tmp_path: Path) -> None:
    """Four workers at 40 s of episodes."""
    rows = told(tmp_path, 4.5)
    assert {row["stage"] for row in rows} == {"health"}
    assert [row["seconds"] for row in rows[:2]] == pytest.approx([4.5, 9.0])
    first, last = rows[0], rows[-1]
    assert first["trajectories_per_minute"] == pytest.approx(ended_within(4.5) / 4.5 * 60)
    assert first["half_filled_groups"] <= first["open_groups"]
    assert (last["open_groups"], last["half_filled_groups"], last["ready_groups"], last["oldest_group_s"]) == (0, 0, 0, None)
    assert last["failed_share"] == last["timed_out_share"] == pytest.approx(2 / 16)
    assert last["truncated_share"] == pytest.approx(4 / 16)
    assert last["examples_per_minute"] is None
    assert sum(row["groups_per_minute"] for row in rows[:2]) > 0


def ended_within(seconds: float) -> int:
    """Episodes that end by then where each of four workers takes the next of 1, 4, 1, 4, ... seconds as it is free."""
    free, ended = [0.0] * 4, 0
    for index in range(16):
        at = free.index(min(free))
        free[at] += 1.0 if index % 2 == 0 else 4.0
        ended += free[at] <= seconds
    return ended


def test_one_row_is_told_of_a_phase_however_short(tmp_path: Path) -> None:
    assert len(told(tmp_path, 1000.0)) == 1


def test_figures_of_the_engine_are_differences(tmp_path: Path) -> None:
    counts = [EngineCounts(), EngineCounts(500, 30, 40, 2), EngineCounts(600, 60, 140, 0)]
    first, second, *_ = told(tmp_path, 5.0, counts)
    assert first["sampled_tokens_per_second"] == pytest.approx(100.0, rel=0.05)
    assert (first["engine_utilisation"], first["engine_waiting"]) == (0.75, 2)
    assert second["engine_utilisation"] == pytest.approx(0.3)


def test_the_age_of_a_group_is_since_it_was_opened() -> None:
    from flow._summary import GroupsSummary, Summary  # made by a run otherwise

    def summary(seconds: float, opened: int, oldest: int | None) -> Summary:
        return Summary("g", None, seconds, {}, {}, {}, {}, (), groups={"groups": GroupsSummary(opened, oldest, 0)})

    ages = GroupAges()
    seen = [(1.0, 4, 0), (2.0, 4, 0), (3.0, 7, 2), (4.0, 9, 5), (5.0, 9, 7), (6.0, 9, None), (9.0, 12, 10)]
    found = []
    for each in seen:
        ages.see(summary(*each))
        found.append(ages.oldest_s(summary(*each), {"groups": None}))
    assert found == [0.0, 1.0, 2.0, 1.0, 1.0, None, 0.0]


def test_memory_of_the_process_is_within_what_it_may_have() -> None:
    held, limit = memory_bytes(), memory_limit()
    assert held is not None
    assert limit is not None
    assert 10e6 < held < limit


def test_the_first_traceback_of_each_kind_of_error_lies_in_a_file(tmp_path: Path) -> None:
    async def fails(number: int, context: Context) -> int:
        raise ZeroDivisionError(f"number {number}")

    async def keep(number: int, context: Context) -> None:
        pass

    made = Graph("g")
    made.source("numbers", range(3)) >> made.stage("fails", fails) >> made.sink("kept", keep)

    async def main(folder: RunFolder) -> None:
        health = Health(folder, 1.0, lambda: 0.0, None, LoopLag())
        run = Run(made.build(quiet=True), watchers=(health,))
        with health.measuring(run):
            await run.finish()

    with RunFolder(tmp_path / "run") as folder:
        folder.begin("phase")
        with pytest.raises(StageFailed):
            run_virtual(main(folder))
    (file,) = (tmp_path / "run" / "errors").iterdir()
    assert file.name == "fails-ZeroDivisionError.txt"
    assert file.read_text().rstrip().endswith("ZeroDivisionError: number 0")
    assert "Traceback" in file.read_text()


def test_an_error_in_short_is_its_end_and_the_nearest_place() -> None:
    frames = '  File "/a/b/stage.py", line 3, in f\n    g()\n  File "/a/tools.py", line 12, in g\n'
    trace = f"Traceback (most recent call last):\n{frames}OSError: full\n"
    assert in_short("OSError", trace) == "full (tools.py:12)"
    assert in_short("timed_out", "after 30 s") == "after 30 s"
    assert in_short("odd", "") == ""


def test_a_full_disk_does_not_end_what_measures(tmp_path: Path, full_disk: Callable[[int | None], None]) -> None:
    """Nor hide what the run itself ends with: rows of stages tell of the disk."""

    async def main(folder: RunFolder) -> None:
        health = Health(folder, 1.0, lambda: 0.0, None, LoopLag())
        run = Run(graph().build(quiet=True), watchers=(health,))
        with health.measuring(run):
            full_disk(10)
            await run.finish()
            full_disk(None)

    with RunFolder(tmp_path / "run") as folder:
        folder.begin("phase")
        run_virtual(main(folder))
    assert decode((tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines()[-1])["stage"] == "health"

"""Runs are equal where all that is not of time is, and what differs is told by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from flow.testing import Process
from graphs.runs.equal import doubled, unequal

Lines = list[dict[str, Any]]


@pytest.fixture
def finished(unkilled: Process) -> Path:
    """Folder of a training that has ended."""
    return unkilled.folder / "runs" / "it"


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "copied")
    return tmp_path / "copied"


def rewritten(file: Path, change: Callable[[Lines], None]) -> None:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    change(rows)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def of_rl(rows: Lines, step: int) -> dict[str, Any]:
    return next(row for row in rows if row["phase"] == "rl" and row.get("step") == step)


def test_a_run_equals_its_copy_whatever_time_it_took_and_in_whatever_order_its_episodes_came(finished, copied):
    def later(rows: Lines) -> None:
        for row in rows:
            row.update(time="later", step_s=17.0, episode_s_mean=3.5, tokens_per_second=1.0)

    def slower(rows: Lines) -> None:
        rows.reverse()
        rows[0]["seconds"] = 17.0

    rewritten(copied / "metrics.jsonl", later)
    rewritten(copied / "episodes.jsonl", slower)
    assert unequal(finished, copied) == []
    assert doubled(copied) == []


def test_a_figure_that_differs_in_its_last_bit_is_told_with_its_step(finished, copied):
    def change(rows: Lines) -> None:
        row = of_rl(rows, 2)
        row["turns_mean"] = float(np.nextafter(row["turns_mean"], 9.0))

    rewritten(copied / "metrics.jsonl", change)
    told = unequal(finished, copied)
    assert len(told) == 1
    assert told[0].startswith("metrics.jsonl: rl/trainer 2.turns_mean: ")


def test_a_row_that_is_there_twice_or_not_at_all_is_told(finished, copied):
    def twice(rows: Lines) -> None:
        rows.append(of_rl(rows, 3))

    rewritten(copied / "metrics.jsonl", twice)
    assert unequal(finished, copied) == ["metrics.jsonl: rl/trainer: 5 rows, and 6"]
    assert doubled(copied) == ["rl/trainer: step 3 has 2 rows"]


def test_an_episode_with_another_word_is_told_from_both_sides(finished, copied):
    def change(rows: Lines) -> None:
        rows[0]["messages"][-1]["content"] += "!"

    rewritten(copied / "episodes.jsonl", change)
    told = unequal(finished, copied)
    assert [line.split(":")[1] for line in told] == [" 1 times only in the one", " 1 times only in the other"]


def test_a_count_of_the_summary_is_told_by_its_path(finished, copied):
    content = json.loads((copied / "summary.json").read_text())
    content["stages"]["groups"]["taken"] += 1
    content["stages"]["groups"]["work_share"] = 0.5
    (copied / "summary.json").write_text(json.dumps(content))
    told = unequal(finished, copied)
    assert len(told) == 1
    assert told[0].startswith("summary.json.stages.groups.taken: ")


def test_one_bit_of_one_parameter_in_the_latest_commit_is_told(finished, copied):
    folder = max((copied / "checkpoints").glob("*/model/parameters"))
    with ocp.PyTreeCheckpointer() as saved:
        like = saved.metadata(folder).item_metadata.tree
        tree = saved.restore(folder, restore_args=jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), like))
        name = next(name for name, leaf in tree.items() if leaf.ndim == 2)
        tree[name].reshape(-1).view(np.uint32)[0] ^= 1
        saved.save(folder, tree, force=True)
    told = unequal(finished, copied)
    assert told == [f"the end: model/parameters/{name}: 1 of {tree[name].size} numbers differ"]


def test_a_run_that_ended_elsewhere_is_told(finished, copied):
    shutil.rmtree(max((copied / "checkpoints").glob("[0-9]*")))
    assert unequal(finished, copied) == ["checkpoints: the last commit is the end, and before heldout_after"]

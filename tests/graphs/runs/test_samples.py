"""Rows of sample episodes: what they hold, when they are written, and that their file stays within its bound."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from graphs.calculator import CalculatorConfig, calculator
from graphs.runs.folder import FolderState, RunFolder
from graphs.runs.samples import SampleRows
from stages.records import Batch, Episode, Group, Segment, Status, Task, Turn
from stages.train.metrics import of_the_machine
from stages.train.samples import Sampled, Samples


def sampled(step: int, length: int = 4) -> Sampled:
    mask = np.arange(length) >= 1
    one = Episode(
        Task("t", "?"), step, 0, 0, np.zeros(length, np.int32), mask, np.where(mask, -0.5, np.nan).astype(np.float32),
        np.where(mask, 3, -1).astype(np.int32), (Turn(1, length, "stop", 0.1, None),), (), Status.FINISHED, reward=float("nan"),
    )  # fmt: skip
    return Sampled(step, one, np.full(length, np.nan, np.float32), np.where(mask, 2.0, 0.0).astype(np.float32))


def decode(ids: np.ndarray) -> str:
    return "x" * len(ids)


def test_a_row_has_an_entry_for_each_token_and_none_where_nothing_is_known() -> None:
    """S43: a reward that is not finite is written by its name."""
    rows = SampleRows(decode, 1, 10_000, 0)
    rows.begin("rl", None)
    rows.take(sampled(7))
    row = json.loads(rows.of_step(7))
    assert (row["attempt"], row["phase"], row["step"], row["kind"], row["text"]) == (1, "rl", 7, "tsss", ["x"] * 4)
    assert row["behaviour"] == [None, -0.5, -0.5, -0.5]
    assert row["trainer"] == [None] * 4
    assert row["version"] == [None, 3, 3, 3]
    assert row["reward"] == "nan"


def test_the_file_keeps_within_its_bound_and_no_step_gets_ahead_of_its_share() -> None:
    rows, kept = SampleRows(decode, 0, 20_000, 0), []
    rows.begin("rl", 1000)
    for step in range(1, 1001):
        rows.take(sampled(step))
        if rows.of_step(step):
            kept.append(step)
    assert rows.size <= 20_000 + 500
    assert 20 < len(kept) < 100
    assert max(np.diff(kept)) <= 2 * min(np.diff(kept)) + 1, "evenly over the run"


def test_an_episode_is_written_with_the_row_of_its_step_and_again_when_the_step_is_done_again(tmp_path: Path) -> None:
    """P6. Into fresh objects: what came after the state was taken is moved aside, and comes once."""

    def step(folder: RunFolder, number: int) -> None:
        folder._sampled.take(sampled(number))  # type: ignore[union-attr]
        folder.reported("trainer", {"step": number, "skipped": None, "updates": 1})

    with RunFolder(tmp_path / "run") as folder:
        folder.begin_attempt()
        folder.sample(Samples(), 1, decode)
        folder.begin("rl", 3)
        step(folder, 1)
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(folder.state()), type=FolderState)
        step(folder, 2)
    with RunFolder(tmp_path / "run", resume=True) as folder:
        folder.begin_attempt(commit=1)
        folder.sample(Samples(), 1, decode)
        folder.begin("rl", 3)
        folder.restore(state)
        step(folder, 2)
    rows = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert [(row["attempt"], row["step"]) for row in rows] == [(0, 1), (1, 2)]


def test_groups_are_offered_once_they_have_advantages(tmp_path: Path) -> None:
    one, found, samples = sampled(1).episode, [], Samples()
    bare = Group(0, (one,))
    given = Group(0, (one,), (np.where(one.mask, 1.0, 0.0),), live=(True,))
    with RunFolder(tmp_path / "run") as folder:
        folder.begin_attempt()
        folder.sample(samples, 1, decode)
        samples.attach(1, found.append)
        folder.committed("rewards", [bare])
        folder.committed("whatever", [given])
        samples.add(Batch(0, ((Segment(one.ids, one.mask),),), 1.0))
        samples.finish(1)
    assert [(each.step, each.episode) for each in found] == [(1, one)]


@pytest.mark.slow
def test_a_run_trains_the_same_with_and_without_samples(
    penalised_config: CalculatorConfig, run: Callable[..., Any], penalised: Path, tmp_path: Path
) -> None:
    """To the bit of every number it tells, those of the updates and of the evaluation after them included."""
    summary = run(calculator(penalised_config), tmp_path / "bare", samples=0)
    assert numbers(tmp_path / "bare") == numbers(penalised)
    told = json.loads((penalised / "summary.json").read_text())
    assert summary["heldout_after_detail"]["num_sampled"] == told["heldout_after_detail"]["num_sampled"]
    assert told["trained_tokens"] > 0
    assert (tmp_path / "bare" / "samples.jsonl").read_bytes() == b""
    rows = [json.loads(line) for line in (penalised / "samples.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 1, 2, 2, 3, 3]
    for row in rows:
        told = [at for at, kind in enumerate(row["kind"]) if kind == "s"]
        assert all(row["behaviour"][at] < 0 for at in told)
        gaps = [row["trainer"][at] - row["behaviour"][at] for at in told if row["trainer"][at] is not None]
        assert all(abs(gap) < 1e-3 for gap in gaps), "one set of weights on both sides, so what is left is rounding"
    assert any(row["trainer"][row["kind"].index("s")] is not None for row in rows)


def numbers(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not of_the_machine(name)} for row in rows if "step" in row]

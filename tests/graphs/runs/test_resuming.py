"""A program that is cut off at a commit, between two phases too, and gone on with ends as one that was not cut off.

What a kill leaves is what is on the disk: copies of the folder of one run, taken while it runs, stand for it. Real kills, at
any moment, are in ``tests/kill``.
"""

import asyncio
import contextlib
import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx
from rich.console import Console

from flow.saving import CannotResume, Made, read_journal
from flow.saving._points import listeners
from flow.trace import read_trace
from graphs.calculator import CalculatorConfig, calculator
from graphs.cli import main
from graphs.program import Program, evaluation, training, warm_start
from graphs.runs.execute import execute, prepare
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.progress import BEGINNING
from graphs.runs.resuming import find_start
from graphs.runs.view import View
from stages.records import Episode
from stages.tasks.arithmetic import DEMONSTRATIONS
from stages.tasks.examples import read_examples
from stages.train.metrics import of_the_machine

pytestmark = pytest.mark.slow

EVERY_STEP = SavingOptions(checkpoint_every=1)
CUTS = ("3 manifest", "3 renamed", "6 renamed", "8 manifest", "8 renamed", "9 manifest")
"""Commits 1 and 2 are those of the warm start, 3 is behind it, 4 behind the first evaluation, 5 to 7 those of training, 8 is
behind it and 9 behind all. ``manifest`` is right before a commit counts, ``renamed`` right after."""
OF_ONE_START = ("attempt", "seconds")


class Ended(NamedTuple):
    folder: Path
    parameters: list[np.ndarray]
    summary: Mapping[str, Any]


def length_reward(episode: Episode) -> float:
    """Something to learn for a policy that knows nothing."""
    return float(episode.num_sampled % 3)


def program(config: CalculatorConfig) -> Program:
    made = calculator(config)
    assert made.parts is not None
    parts = dataclasses.replace(made.parts, reward=length_reward)
    phases = (
        warm_start(config.warm_start, parts, read_examples(DEMONSTRATIONS)),
        evaluation("heldout_before", config.evaluate, parts),
        training(config.rl, parts),
        evaluation("heldout_after", config.evaluate, parts),
    )
    return dataclasses.replace(made, parts=parts, phases=phases)


def go_on(made: Program, folder: RunFolder, console: Console) -> Ended:
    start = find_start(folder.path) if folder.path.exists() else BEGINNING
    plans = prepare(made, folder)
    summary = asyncio.run(execute(made, plans, folder, View(console), options=EVERY_STEP, start=start))
    assert made.parts is not None
    leaves = jax.tree.leaves(nnx.state(made.parts.model, nnx.Param))
    return Ended(folder.path, [np.asarray(leaf) for leaf in leaves], summary)


@pytest.fixture(scope="module")
def tiny(config: Callable[..., CalculatorConfig]) -> CalculatorConfig:
    base = config()
    return base.model_copy(update={"warm_start": base.warm_start.model_copy(update={"steps": 2})})


@pytest.fixture(scope="module")
def whole(tiny: CalculatorConfig, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run that was never cut off; copies of its folder lie beside it."""
    folder = tmp_path_factory.mktemp("resuming") / "whole"
    counts = {"commit.manifest": 0, "commit.renamed": 0}

    def copy(point: str) -> None:
        if point in counts:
            counts[point] += 1
            shutil.copytree(folder, folder.with_name(f"{counts[point]} {point.removeprefix('commit.')}"))

    with listening(copy):
        return go_on(program(tiny), RunFolder(folder), Console(quiet=True))


def rows(file: Path) -> list[dict[str, Any]]:
    """Rows without those of health, and without what tells one start, or the speed of the machine, from another."""
    found = [row for line in file.read_text().splitlines() if "seconds" not in (row := json.loads(line)) or "stage" not in row]
    return [timeless(row) for row in found]


def timeless(value: Any) -> Any:
    if isinstance(value, list):
        return [timeless(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: timeless(part) for key, part in value.items() if key not in OF_ONE_START and not of_the_machine(key)}


@pytest.mark.parametrize("cut", CUTS)
def test_it_ends_with_the_same_parameters_rows_episodes_and_counts(
    cut: str, whole: Ended, tiny: CalculatorConfig, tmp_path: Path
) -> None:
    """P1, P4, P6, S92, S96, S100. Bit by bit, and one row for each step."""
    folder = tmp_path / "cut"
    shutil.copytree(whole.folder.with_name(cut), folder)
    ended = go_on(program(tiny), RunFolder(folder, resume=True), Console(quiet=True))
    for got, expected in zip(ended.parameters, whole.parameters, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert rows(folder / "metrics.jsonl") == rows(whole.folder / "metrics.jsonl")
    told = [sorted(json.dumps(row, sort_keys=True) for row in rows(run / "episodes.jsonl")) for run in (folder, whole.folder)]
    assert told[0] == told[1]
    same = ("steps", "episodes", "sampled_tokens", "trained_tokens", "sources", "heldout_before_detail", "heldout_after_detail")
    assert {key: ended.summary[key] for key in same} == {key: whole.summary[key] for key in same}
    assert [phase["name"] for phase in ended.summary["phases"]] == [phase["name"] for phase in whole.summary["phases"]]
    assert (ended.summary["attempts"], whole.summary["attempts"]) == (2, 1)
    assert {json.loads(line)["attempt"] for line in (folder / "metrics.jsonl").read_text().splitlines()} <= {0, 1}


def test_it_says_where_it_goes_on_and_its_trace_is_one_of_two_files(
    whole: Ended, tiny: CalculatorConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(whole.folder.with_name("6 renamed"), folder)
    console = Console(record=True, width=200, quiet=False, file=(tmp_path / "told").open("w"))
    with console.file:
        go_on(program(tiny), RunFolder(folder, resume=True), console)
    assert "rl: 3 steps of 4 groups of 4, max_lag 0; goes on after step 2 of 3" in console.export_text()
    names = [track.name for track in read_trace(folder).tracks.values()]
    assert names.count("graph rl") == 1
    assert (folder / "run.1.pftrace").exists()
    later = [row for row in rows(folder / "superseded.jsonl") if row["file"] == "metrics.jsonl"]
    assert [row["row"]["step"] for row in later if "step" in row["row"]] in ([], [3])  # it was under way when the copy was made


def test_another_model_than_the_run_began_with_is_refused_and_nothing_is_touched(
    whole: Ended, tiny: CalculatorConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(whole.folder.with_name("6 renamed"), folder)
    before = (folder / "metrics.jsonl").read_bytes(), (folder / "config.json").read_bytes()
    other, told = program(tiny.model_copy(update={"seed": 1})), Console(record=True, width=200, quiet=True)
    with pytest.raises(CannotResume, match=r"000006 was made with, got another model; go on with the model, tokenizer and"):
        go_on(other, RunFolder(folder, resume=True), told)
    assert ((folder / "metrics.jsonl").read_bytes(), (folder / "config.json").read_bytes()) == before
    assert not (folder / "summary.json").exists()
    assert len((folder / "attempts.jsonl").read_text().splitlines()) == 1


def test_a_program_of_ones_own_code_is_gone_on_with_by_that_code(whole: Ended, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a program that was put together in code nothing can be made again."""
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(whole.folder)])
    assert ended.value.code == 2
    assert "expected a run of headrace run, got one of 'calculator'" in capsys.readouterr().err


def test_of_an_evaluation_that_is_cut_off_no_finished_episode_is_played_again(
    whole: Ended, tiny: CalculatorConfig, tmp_path: Path
) -> None:
    """P3. A second start is in the last evaluation when its folder is copied, a third goes on from the copy."""
    second, third = tmp_path / "second", tmp_path / "third"
    shutil.copytree(whole.folder.with_name("8 renamed"), second)

    def copy(point: str) -> None:
        if point == "journal.appended" and made(second).total() == 6 and not third.exists():
            shutil.copytree(second, third)

    with listening(copy):
        go_on(program(tiny), RunFolder(second, resume=True), Console(quiet=True))
    assert not list((second / "journal").glob("heldout_after-*"))
    counts: list[Counter[Any]] = []
    with listening(lambda point: counts.append(made(third)) if point == "commit.begin" else None):
        ended = go_on(program(tiny), RunFolder(third, resume=True), Console(quiet=True))
    assert set(counts[-1].values()) == {1}
    assert len(counts[-1]) == 16
    assert ended.summary["heldout_after_detail"] == whole.summary["heldout_after_detail"]
    told = [sorted(json.dumps(row, sort_keys=True) for row in rows(run / "episodes.jsonl")) for run in (third, whole.folder)]
    assert told[0] == told[1]


def made(folder: Path) -> Counter[Any]:
    """How often each episode of the last evaluation was played to its end, all starts together."""
    records = [record for log in (folder / "journal").glob("heldout_after-*") for record in read_journal(log)]
    return Counter(record.key for record in records if isinstance(record, Made))


@contextlib.contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)

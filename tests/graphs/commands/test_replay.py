"""A real run with a lag, slow tools and a judge that never says the same twice: killed, gone on with, replayed."""

import asyncio
import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flax import nnx
from rich.console import Console

from flow.saving import Opened, complete, read_journal
from flow.saving._points import listeners
from graphs.calculator import CalculatorConfig, calculator
from graphs.cli import main
from graphs.program import Program, training, warm_start
from graphs.replays.compared import rows_of
from graphs.replays.plan import ReplayOptions, prepare_replay
from graphs.runs.execute import execute, prepare
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.progress import BEGINNING
from graphs.runs.resuming import find_start
from graphs.runs.view import View
from stages.checkpoint.store import load_model
from stages.records import Episode
from stages.tasks.arithmetic import DEMONSTRATIONS
from stages.tasks.examples import read_examples
from stages.tools.delay import DelayConfig
from stages.train.digest import digest_of

pytestmark = pytest.mark.slow

STEPS = 6
OPTIONS = SavingOptions(checkpoint_every=4, keep=3, record=True)


def any_reward(episode: Episode) -> float:
    """Another one each time: only what was recorded can give it again."""
    return random.random()


def program(config: CalculatorConfig) -> Program:
    made = calculator(config)
    assert made.parts is not None
    parts = dataclasses.replace(made.parts, reward=any_reward)
    phases = (warm_start(config.warm_start, parts, read_examples(DEMONSTRATIONS)), training(config.rl, parts))
    return dataclasses.replace(made, parts=parts, phases=phases, made_by="calculator")


def go_on(made: Program, folder: RunFolder) -> Path:
    start = find_start(folder.path) if folder.path.exists() else BEGINNING
    plans = prepare(made, folder)
    asyncio.run(execute(made, plans, folder, View(Console(quiet=True)), options=OPTIONS, start=start))
    return folder.path


@pytest.fixture(scope="module")
def recorded(config: Callable[..., CalculatorConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed while it made the commit of step 4, and gone on with from the one before training."""
    base = config(delay=DelayConfig(scale_s=0.005, shape=1.1, max_s=0.2))
    settings = base.model_copy(
        update={
            "warm_start": base.warm_start.model_copy(update={"steps": 3}),
            "rl": base.rl.model_copy(update={"steps": STEPS, "max_lag": 1}),
        }
    )
    folder = tmp_path_factory.mktemp("replay") / "whole"
    killed = folder.with_name("killed")

    def copy(point: str) -> None:
        if point == "commit.begin" and len(complete(folder / "checkpoints")) == 2 and not killed.exists():
            shutil.copytree(folder, killed)

    listeners.append(copy)
    try:
        go_on(program(settings), RunFolder(folder))
    finally:
        listeners.remove(copy)
    return go_on(program(settings), RunFolder(killed, resume=True))


def replayed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    """Exit status and lines of the command."""
    capsys.readouterr()
    try:
        main(["replay", *map(str, arguments)])
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    told = capsys.readouterr()
    return status, (told.out + told.err).splitlines()


def test_every_step_comes_out_as_it_did_to_the_last_bit_without_environments_and_engine(
    recorded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [r.after for r in read_journal(recorded / "journal") if isinstance(r, Opened)] == [0, 2]
    for forbidden in ("stages.rollout.engine.Engine.__aenter__", "stages.episodes.Episodes.__call__"):
        monkeypatch.setattr(forbidden, None)
    status, lines = replayed(capsys, recorded)
    assert status == 0, lines
    steps = [line for line in lines if line.startswith("rl step")]
    assert [line.partition(":")[0] for line in steps] == [f"rl step {number}" for number in range(1, STEPS + 1)]
    assert all(line.endswith(": equal") for line in steps)
    assert lines[-1] == "rl: steps compared in every figure: 6, 6 of them to the bit of every parameter, different: none"
    rows = [json.loads(line) for line in (recorded / "metrics.jsonl").read_text().splitlines()]
    assert max(row["lag_max"] for row in rows if row["phase"] == "rl" and row["stage"] == "trainer") == 1


def test_it_stops_at_a_step_and_leaves_its_weights_as_a_run_and_its_batch_to_be_read(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = replayed(capsys, recorded, "--to-step", 4, "--dump-batch", "last", "--out", tmp_path)
    assert status == 0, lines
    assert lines[-2:] == [
        f"batch of step 4: {tmp_path / 'batch-000004'}",
        f"weights after step 4: {tmp_path / 'step-000004'}; headrace eval, chat and export take it as a run",
    ]
    text = (tmp_path / "batch-000004" / "minibatch-0" / "rows.txt").read_text()
    assert "<|user|>" in text
    assert "[[" in text
    with np.load(tmp_path / "batch-000004" / "minibatch-0" / "rows.npz") as rows:
        rl = json.loads((recorded / "config.json").read_text())["config"]["rl"]
        assert rows["0.ids"].shape == (rl["trainer"]["rows_per_microbatch"], rl["trainer"]["row_length"])
    commit = complete(recorded / "checkpoints")[0].folder
    there = tmp_path / "step-000004" / "checkpoints" / "000001"
    assert parameters(there / "model", recorded) == parameters(commit / "trainer", recorded)
    main(["eval", str(tmp_path / "step-000004"), "--evaluate.num-tasks", "4"])
    assert "held-out success: " in capsys.readouterr().out


def test_it_begins_at_a_commit_with_all_that_the_trainer_had(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = complete(recorded / "checkpoints")[0].number
    status, lines = replayed(capsys, recorded, "--from", number)
    assert (status, len(lines)) == (0, 3)
    assert [line.partition(":")[0] for line in lines[:2]] == ["rl step 5", "rl step 6"]
    assert lines[-1] == "rl: steps compared in every figure: 2, 2 of them to the bit of every parameter, different: none"


def test_what_comes_out_otherwise_is_named_and_the_status_says_so(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row that was changed by hand differs where it was changed.

    No commit of training is left, so the warm start is trained again, and comes out as it did.
    """
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    shutil.rmtree(run / "checkpoints")
    file = run / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        if (row["phase"], row["stage"], row.get("step")) == ("rl", "trainer", 2):
            row["reward_mean"] = 7.0
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, lines = replayed(capsys, run)
    assert status == 1
    assert lines[0] == "warm_start: steps compared in every figure: 3, different: none"
    assert [line.partition(": ")[2].rpartition(": ")[2] for line in lines[1:4]] == [
        "equal", f"reward_mean was 7.0 and is {reward_of(recorded, 2)!r}", "equal",
    ]  # fmt: skip


def test_other_settings_make_other_steps(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    saved = json.loads((run / "config.json").read_text())
    saved["config"]["rl"]["trainer"]["learning_rate"] *= 2
    (run / "config.json").write_text(json.dumps(saved))
    status, lines = replayed(capsys, run, "--to-step", 2)
    assert status == 1
    assert "learning_rate was 0.01 and is 0.02" in lines[0]
    assert "loss was " in lines[1]
    assert lines[2] == "rl: steps compared in every figure: 2, 2 of them to the bit of every parameter, different: 2"


def test_what_the_run_depended_on_and_is_another_now_is_told_first(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(recorded, run)
    summary = json.loads((run / "summary.json").read_text())
    summary["versions"]["packages"]["jax"] = "0.0.1"
    (run / "summary.json").write_text(json.dumps(summary))
    status, lines = replayed(capsys, run, "--to-step", 1)
    assert status == 0
    assert "packages.jax" in lines[0]
    assert "0.0.1" in lines[0]
    assert lines[1].endswith(": equal")


@pytest.mark.parametrize("count", [0, 2])
def test_a_program_with_no_or_several_phases_that_could_be_meant_is_refused(
    config: Callable[..., CalculatorConfig], tmp_path: Path, count: int
) -> None:
    made = program(config())
    warm, rl = made.phases
    with pytest.raises(
        LookupError, match=f"expected a run with one phase of reinforcement learning, got {count or 'none'}, in"
    ):
        prepare_replay(tmp_path, dataclasses.replace(made, phases=(warm, *(rl,) * count)), ReplayOptions())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to-step", 9], "expected a step from 1 to 6, got 9, in --to-step; choose one of these"),
        (["--to-step", 2, "--dump-batch", 3], "expected a step from 1 to 2, got 3, in --dump-batch"),
        (["--from", 99], "of the recorded phase, got 99, in --from; leave it out to begin with the phase"),
    ],
)
def test_what_is_not_there_is_refused(
    recorded: Path, capsys: pytest.CaptureFixture[str], arguments: list[object], said: str
) -> None:
    status, lines = replayed(capsys, recorded, *arguments)
    assert status == 2
    assert said in "\n".join(lines)


def test_a_run_that_recorded_nothing_is_told_what_to_do(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(recorded / "config.json", tmp_path)
    status, lines = replayed(capsys, tmp_path)
    assert status == 2
    assert "got none; only a run that was begun with --options.record can be replayed" in "\n".join(lines)
    (tmp_path / "replays" / "step-000001").mkdir(parents=True)
    shutil.copytree(recorded / "journal", tmp_path / "journal")
    status, lines = replayed(capsys, tmp_path, "--to-step", 1)
    assert status == 2
    assert "expected nothing to be there yet, got" in "\n".join(lines)


def parameters(folder: Path, recorded: Path) -> str:
    """The digest of what a commit has of the parameters of a model."""
    saved = json.loads((recorded / "config.json").read_text())
    parts = calculator(CalculatorConfig.model_validate(saved["config"])).parts
    assert parts is not None
    load_model(parts.model, folder)
    return digest_of(nnx.state(parts.model, nnx.Param))


def reward_of(run: Path, step: int) -> float:
    return rows_of(run)["rl", step]["reward_mean"]

"""A real run with a lag, slow tools and a judge that never says the same twice, killed in the middle, gone on with, replayed."""

import asyncio
import dataclasses
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from flow.saving import Opened, complete, read_journal
from flow.saving._points import listeners
from graphs.calculator import CalculatorConfig, calculator
from graphs.cli import main
from graphs.execute import execute, prepare
from graphs.options import SavingOptions
from graphs.program import Program, training, warm_start
from graphs.progress import BEGINNING
from graphs.resuming import find_start
from graphs.run_folder import RunFolder
from graphs.view import View
from stages.records import Episode
from stages.tasks.arithmetic import DEMONSTRATIONS
from stages.tasks.examples import read_examples
from stages.tools.delay import DelayConfig

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
    assert lines[-1] == "rl: steps compared: 6, to the bit of every parameter: 6, different: none"
    rows = [json.loads(line) for line in (recorded / "metrics.jsonl").read_text().splitlines()]
    assert max(row["lag_max"] for row in rows if row["phase"] == "rl" and row["stage"] == "trainer") == 1

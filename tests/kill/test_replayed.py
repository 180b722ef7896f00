"""A real run with a lag and a judge that never says the same twice: killed four times, gone on with, replayed to the bit."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flow.saving import Opened, read_journal

ROOT = Path(__file__).parents[2]
PROGRAM = """
import dataclasses
import importlib.util
import random

from graphs import calculator
from stages.tools.delay import DelayConfig

spec = importlib.util.spec_from_file_location("conftest", "CONFTEST")
conftest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conftest)


async def any_reward(episode):
    return random.random()


def train():
    calculator.exact_answer = any_reward
    config = conftest.tiny_config(delay=DelayConfig(scale_s=0.01, shape=1.1, max_s=0.3))
    rl = config.rl.model_copy(update={"max_lag": 1, "steps": 40})
    warm = config.warm_start.model_copy(update={"steps": 3})
    made = calculator.calculator(config.model_copy(update={"rl": rl, "warm_start": warm}))
    return dataclasses.replace(made, config=None, phases=(made.phases[0], made.phases[2]))
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "graphs.cli", *arguments],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_every_step_of_a_run_that_was_killed_four_times_comes_out_as_it_did(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    (tmp_path / "own.py").write_text(PROGRAM.replace("CONFTEST", str(ROOT / "tests" / "graphs" / "conftest.py")))
    options = ("--options.name", "a", "--options.record", "--options.checkpoint-every", "3", "--options.keep", "4")
    process, run = started(tmp_path, "run", "own.py:train", *options), tmp_path / "runs" / "a"
    for target in (9, 18, 26, 33):
        while process.poll() is None and steps(run) < target:
            time.sleep(0.02)
        time.sleep(0.3 * chance.random())
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
        process = started(tmp_path, "resume", str(run))
    assert process.wait() == 0, (tmp_path / "log").read_text()
    assert sum(isinstance(record, Opened) for record in read_journal(run / "journal")) == 5
    again = started(tmp_path, "replay", str(run))
    assert again.wait() == 0, (tmp_path / "log").read_text()
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last == "rl: steps compared in every figure: 40, 40 of them to the bit of every parameter, different: none"


def steps(run: Path) -> int:
    """Rows of steps of the run, as far as it is."""
    file = run / "metrics.jsonl"
    return file.read_text().count('"skipped_total"') if file.exists() else 0

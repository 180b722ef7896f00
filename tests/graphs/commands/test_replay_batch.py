"""A real run whose rewards explode, and ``headrace replay-batch`` on what it kept."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphs.calculator import calculator
from graphs.cli import main
from stages.records import Episode

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


async def huge_reward(episode: Episode) -> float:
    """So large that sums of it overflow, while a single one does not."""
    return 3e38 if episode.member else 0.0


def test_a_bad_step_of_a_run_is_repeated_to_the_bit_by_another_process(config, run, tmp_path: Path, monkeypatch) -> None:
    """Planted: advantages of 1e38, whose gradient is infinite. The run goes on, and says where it kept the step."""
    monkeypatch.setattr("graphs.calculator.exact_answer", huge_reward)
    small = config()
    advantages = small.rl.advantages.model_copy(update={"scale": False})
    rl = small.rl.model_copy(update={"steps": 2, "advantages": advantages})
    program, folder = calculator(small.model_copy(update={"rl": rl})), tmp_path / "run"
    run(dataclasses.replace(program, phases=[phase for phase in program.phases if phase.main]), folder)
    assert sorted(path.name for path in (folder / "bad-steps").iterdir()) == ["step-000001", "step-000002"]
    bad = folder / "bad-steps" / "step-000002"
    done = subprocess.run(
        [sys.executable, "-m", "graphs.cli", "replay-batch", bad],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "step 2: not finite" in done.stdout
    assert "to the bit as in the run" in done.stdout
    assert "blocks.0.query.kernel_IO: " in done.stdout
    assert ", position " in done.stdout


def test_what_is_no_bad_step_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        ([str(tmp_path)], "expected a bad step with a bad.json, got"),
        (["a", "b"], "expected one bad step"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["replay-batch", *arguments])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err

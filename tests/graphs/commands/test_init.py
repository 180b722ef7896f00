"""``headrace init``: what it writes runs and passes its own tests, in a folder of nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphs.cli import main

ROOT = Path(__file__).parents[3]
FILES = {"environment.py", "graph.py", "tasks.jsonl", "test_own.py", "tools.py"}


def test_the_files_are_few_and_short(tmp_path, capsys):
    main(["init", str(tmp_path / "mine")])
    files = list((tmp_path / "mine").iterdir())
    assert {file.name for file in files} == FILES
    assert sum(len(file.read_text().splitlines()) for file in files) <= 70
    assert "next: cd" in capsys.readouterr().out


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "graph.py").write_text("mine")
    for place, said in ((tmp_path, "expected a folder without graph.py"), (tmp_path / "graph.py", "which is a file")):
        with pytest.raises(SystemExit) as ended:
            main(["init", str(place)])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["graph.py"]


def test_a_folder_that_cannot_be_written_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["init", "/proc/x"])
    assert ended.value.code == 2
    assert "expected a folder to write to, got '/proc/x': No such file or directory, in init" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_written_passes_its_own_tests(tmp_path):
    """As a user would run them, in a folder with nothing else in it."""
    main(["init", str(tmp_path / "mine")])
    assert "2 passed" in run(tmp_path / "mine", "-m", "pytest", "-p", "no:cacheprovider")


@pytest.mark.soak
def test_what_is_written_plays_and_trains(tmp_path):
    """With the commands that ``init`` tells."""
    run(tmp_path, "-m", "graphs.cli", "init", ".")
    assert "score: reward" in run(tmp_path, "-m", "graphs.cli", "try", "environment.py:Quiz")
    assert "summary: " in run(tmp_path, "-m", "graphs.cli", "run", "graph.py:train", "--rl.steps", "1")


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

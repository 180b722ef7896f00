"""``headrace doctor`` as a user calls it, also where nothing else of headrace can be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEEDED = ("jax", "flax", "numpy", "pydantic", "msgspec", "anyio", "rich", "tyro", "transformers")
BARE = f"""
import sys
for name in {NEEDED!r}:
    sys.modules[name] = None
sys.argv = ["headrace", *sys.argv[1:]]
from graphs.entry import main
main()
"""


def called(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


@pytest.mark.slow
def test_it_works_where_no_package_can_be_imported_and_other_commands_point_to_it(tmp_path: Path) -> None:
    done = called(tmp_path, "-c", BARE, "doctor", "--json", "--folder", "mine")
    told = json.loads(done.stdout)
    assert (done.returncode, told["faults"]) == (0, 0), done.stdout
    found = {finding["what"]: finding for finding in told["findings"]}
    assert found["devices"]["values"]["backend"] == "cpu"
    assert found["runs folder"]["values"]["folder"] == str(tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []
    other = called(tmp_path, "-c", BARE, "run", "calculator")
    assert other.returncode == 2
    assert other.stderr.endswith("headrace doctor tells what to install\n")


@pytest.mark.slow
def test_what_would_stop_a_run_is_told_first_with_status_1(tmp_path: Path) -> None:
    done = called(tmp_path, "-m", "graphs.entry", "doctor", JAX_PLATFORMS="abacus", COLUMNS="80")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("fault   devices      expected JAX to start")
    assert "abacus" in done.stdout
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith("1 fault would stop a run")


def test_an_argument_it_does_not_know_is_status_2(tmp_path: Path) -> None:
    """S105."""
    done = called(tmp_path, "-m", "graphs.entry", "doctor", "--jsn")
    assert done.returncode == 2
    assert "--jsn" in done.stderr

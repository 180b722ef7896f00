"""Every example runs as a user would run it, and its last line says that it did what it shows."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
LAST_LINES = {
    "kill_and_resume.py": "weight 814849 without kills, 814849 with two, the same: True",
    "three_stages.py": "sum of squares 328350, in order: True",
    "back_pressure.py": "deepest queue 4 of 4, fetched waited for room: True",
    "broken_edge.py": "refused with 1 fault, rule B2, before anything ran",
    "own_environment.py": "100 numbers found in at most 7 turns, 5.8 on average",
    "grpo_with_a_tool.py": "3 steps, no lag above 1: True",
    "remote_engine.py": "3 steps, and the server samples from version 3: True",
    "own_tool.py": "held-out success: 0.000 now",
    "fan_out_and_in.py": "40 facts at 50 a second took at least 0.78 s: True; {'fact': 40, 'sum': 20}",
    "shell_agent.py": "solved 0.000 in one turn, 1.000 at a shell",
    "mcp_tool.py": "2 of 2 answers right, each read from a server",
    "check_a_stage.py": "the repaired stage keeps its contract",
    "frozen_lake.py": "at least a fifth more reach the goal: True",
    "curriculum.py": "160 groups trained, each draw with one end: True",
    "reasoning_gym_tasks.py": "18 of 18 sums right, 1 of 22 with a minus",
}
NEEDS = {
    "frozen_lake.py": ("gymnasium", "gymnasium"),
    "mcp_tool.py": ("mcp", "mcp"),
    "reasoning_gym_tasks.py": ("reasoning-gym", "reasoning_gym"),
    "remote_engine.py": ("serve", "uvicorn"),
}
"""Extras of examples, each with a module it brings. They say that they were skipped where that is absent."""


def test_every_example_is_in_the_table() -> None:
    assert sorted(file.name for file in FOLDER.glob("*.py")) == sorted(LAST_LINES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.extra] if name in NEEDS else []) for name in sorted(LAST_LINES)]
)
def test_an_example_ends_as_it_says(name: str) -> None:
    done = subprocess.run([sys.executable, FOLDER / name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    extra, module = NEEDS.get(name, ("", "json"))
    last = LAST_LINES[name] if find_spec(module) is not None else f"skipped: it needs pip install 'headrace[{extra}]'"
    assert done.stdout.rstrip().splitlines()[-1] == last

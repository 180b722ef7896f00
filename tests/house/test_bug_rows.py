"""Faults reported of systems like this one: each that concerns flow, the engine, episodes or texts is named by a test."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLOW_ROWS = (1, 2, 4, 5, 6, 8, 10, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 27, 41, 73)
"""Of the scheduler, the edges and the barrier. Their numbers; the docstring of a test says ``S19``."""
ENGINE_ROWS = (11, 13, 14, 47, 62, 80, 82, 84, 85, 86, 87, 88, 90, 91)
"""Of the engine and of getting weights to it."""
EPISODE_ROWS = (7, 9, 24, 28, 29, 30, 31, 32, 33, 34, 35, 36, 38, 42)
"""Of an episode: its agent, its environment and its tools."""

TRAINER_ROWS = (39, 58, 75, 76, 77, 78, 79, 88, 89, 91, 100)
"""Of what is trained: packing, masks, passes over a step, and going on from what was saved."""
TEXT_ROWS = (44, 45, 46, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 63, 64)
"""Of chat templates and of reading calls."""
CREDIT_ROWS = (37, 41, 58, 65, 66, 67, 68, 69, 70, 71, 72, 74)
"""Of rewards and advantages."""


def test_every_reported_fault_of_rewards_and_advantages_has_a_test_that_names_it():
    assert set(unnamed(CREDIT_ROWS, ROOT / "stages")) & set(unnamed(CREDIT_ROWS, ROOT / "battery")) == set()


SOURCE_ROWS = (3, 92, 93, 95, 106, 107, 108)
"""Of sources of tasks, and of where they go on."""


def test_every_reported_fault_of_a_source_has_a_test_of_stages_that_names_it():
    assert unnamed(SOURCE_ROWS, ROOT / "stages") == []


RESUME_ROWS = (4, 25, 92, 93, 94, 95, 96, 97, 98, 99, 100)
"""Of saving a run and going on with it."""


def test_every_reported_fault_of_going_on_with_a_run_has_a_test_of_flow_stages_or_the_kills_that_names_it():
    elsewhere = set(unnamed(RESUME_ROWS, ROOT / "stages")) & set(unnamed(RESUME_ROWS, ROOT / "kill"))
    assert elsewhere & set(unnamed(RESUME_ROWS, ROOT / "flow" / "saving")) == set()


TIME_ROWS = (104,)
"""Of times that are measured, and carried to where they are read."""


def test_every_reported_fault_of_times_has_a_test_of_a_run_that_names_it():
    assert unnamed(TIME_ROWS, ROOT / "graphs") == []


RECORD_ROWS = (40, 43)
"""Of what a run writes of itself: its counts, and numbers that are none."""


def test_every_reported_fault_of_what_a_run_writes_has_a_test_of_graphs_that_names_it():
    assert unnamed(RECORD_ROWS, ROOT / "graphs") == []


CLI_ROWS = (26, 81, 83, 105, 107)
"""Of the command line and of settings."""


def test_every_reported_fault_of_the_command_line_and_of_settings_has_a_test_of_graphs_that_names_it():
    assert unnamed(CLI_ROWS, ROOT / "graphs") == []


def test_every_reported_fault_of_the_scheduler_has_a_test_that_names_it():
    assert unnamed(FLOW_ROWS, ROOT) == []


def test_every_reported_fault_of_the_engine_has_a_test_of_stages_or_graphs_that_names_it():
    assert set(unnamed(ENGINE_ROWS, ROOT / "stages")) & set(unnamed(ENGINE_ROWS, ROOT / "graphs")) == set()


def test_every_reported_fault_of_templates_and_calls_has_a_test_of_stages_that_names_it():
    assert unnamed(TEXT_ROWS, ROOT / "stages") == []


def test_every_reported_fault_of_the_trainer_has_a_test_of_stages_that_names_it():
    assert unnamed(TRAINER_ROWS, ROOT / "stages") == []


def test_every_reported_fault_of_an_episode_has_a_test_that_names_it():
    assert unnamed(EPISODE_ROWS, ROOT / "stages") == []


TRACING_ROWS = (40, 43, 101, 102, 103, 104)
"""Of what a run says about itself."""


def test_every_reported_fault_of_traces_and_figures_has_a_test_that_names_it():
    assert unnamed(TRACING_ROWS, ROOT) == []


def test_only_the_docstring_of_a_test_counts():
    source = '"""S1."""\n\ndef test_x():\n    """S2, S30 and C3: S4x, XS5."""\n    # S6\n\ndef other():\n    """S7."""\n'
    assert rows_named(source) == {2, 30}


def unnamed(rows: Iterable[int], folder: Path) -> list[str]:
    """Those of the rows that no test under a folder names."""
    named = {number for file in sorted(folder.rglob("test_*.py")) for number in rows_named(file.read_text())}
    return [f"S{number}" for number in rows if number not in named]


def rows_named(source: str) -> set[int]:
    """Numbers in the docstrings of the test functions of a file."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found |= {int(number) for number in re.findall(r"\bS(\d+)\b", ast.get_docstring(node) or "")}
    return found

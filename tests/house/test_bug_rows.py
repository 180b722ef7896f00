"""Faults reported of systems like this one: each that concerns the scheduler, the edges or the barrier is named by a test."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = (1, 2, 4, 5, 6, 8, 10, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 27, 41, 73)
"""Their numbers; the docstring of a test says ``S19``."""


def test_every_reported_fault_of_the_scheduler_has_a_test_that_names_it():
    named = {number for file in sorted(ROOT.rglob("test_*.py")) for number in rows_named(file.read_text())}
    assert [f"S{number}" for number in ROWS if number not in named] == []


def test_only_the_docstring_of_a_test_counts():
    source = '"""S1."""\n\ndef test_x():\n    """S2, S30 and C3: S4x, XS5."""\n    # S6\n\ndef other():\n    """S7."""\n'
    assert rows_named(source) == {2, 30}


def rows_named(source: str) -> set[int]:
    """Numbers in the docstrings of the test functions of a file."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found |= {int(number) for number in re.findall(r"\bS(\d+)\b", ast.get_docstring(node) or "")}
    return found

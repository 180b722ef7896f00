"""The core decides and never waits: it knows no event loop, no thread, no clock, no file."""

import ast
from pathlib import Path

import flow

CORE = Path(flow.__file__).parent / "_core"
IMPURE = {"asyncio", "anyio", "threading", "concurrent", "time", "socket", "os", "pathlib", "random"}


def imported(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def test_the_core_imports_nothing_that_waits_or_looks_outside():
    assert {
        file.name: imported(file.read_text()) & IMPURE for file in CORE.glob("*.py") if imported(file.read_text()) & IMPURE
    } == {}


def test_nothing_in_the_core_is_asynchronous():
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncWith, ast.AsyncFor)
    found = [f.name for f in CORE.glob("*.py") if any(isinstance(node, kinds) for node in ast.walk(ast.parse(f.read_text())))]
    assert found == []
    assert len(list(CORE.glob("*.py"))) > 5

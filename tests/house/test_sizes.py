"""Files are rooms: one that is long says why, and a ready graph stays small."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES = 400
MOST_GRAPH_LINES = 120
INFRASTRUCTURE = {
    "__init__.py",
    "catalogue.py",
    "chat.py",
    "cli.py",
    "engine_trace.py",
    "equal.py",
    "execute.py",
    "export.py",
    "fitting.py",
    "interrupts.py",
    "memory.py",
    "model_source.py",
    "own.py",
    "own_parts.py",
    "parts.py",
    "pretrained_parts.py",
    "program.py",
    "replay.py",
    "rl_faults.py",
    "run_folder.py",
    "saved.py",
    "starting.py",
    "summary.py",
    "talk.py",
    "trial.py",
    "versions.py",
    "view.py",
}
"""Files of graphs/ that hold no graph."""


def test_a_file_above_400_lines_says_at_its_head_why():
    silent = [
        f"{file.relative_to(ROOT)}: {lines} lines; split it, or say 'long because' in the first paragraph of its docstring"
        for folder in ("flow", "stages", "graphs", "tests", "examples")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if (lines := num_lines(file)) > MOST_LINES and "long because" not in first_paragraph(file.read_text())
    ]
    assert silent == []


def test_a_ready_graph_stays_under_120_lines():
    grown = [
        f"graphs/{file.name}: {lines} lines, at most {MOST_GRAPH_LINES - 1}; a stage is missing"
        for file in sorted((ROOT / "graphs").glob("*.py"))
        if file.name not in INFRASTRUCTURE and (lines := num_lines(file)) >= MOST_GRAPH_LINES
    ]
    assert grown == []


def test_the_reason_counts_in_the_first_paragraph_only():
    assert "long because" in first_paragraph('"""A parser, long because\nof its table."""\n').replace("\n", " ")
    assert "long because" not in first_paragraph('"""A parser.\n\nIt is long because of its table."""\n')
    assert first_paragraph("x = 1\n") == ""


def num_lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def first_paragraph(source: str) -> str:
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(docstring.split("\n\n")[0].split())

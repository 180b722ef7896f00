"""Files are rooms: one that is long says why, and a ready graph stays small."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES = 400
MOST_GRAPH_LINES = 120


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
        if declares_a_graph(file.read_text()) and (lines := num_lines(file)) >= MOST_GRAPH_LINES
    ]
    assert grown == []
    assert declares_a_graph((ROOT / "graphs" / "rl.py").read_text())


def test_the_reason_counts_in_the_first_paragraph_only():
    assert "long because" in first_paragraph('"""A parser, long because\nof its table."""\n').replace("\n", " ")
    assert "long because" not in first_paragraph('"""A parser.\n\nIt is long because of its table."""\n')
    assert first_paragraph("x = 1\n") == ""


def declares_a_graph(source: str) -> bool:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id == "Graph" for call in calls)


def num_lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def first_paragraph(source: str) -> str:
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(docstring.split("\n\n")[0].split())

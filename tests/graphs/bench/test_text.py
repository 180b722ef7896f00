"""Text for a terminal of any width: nothing is lost, nothing is wider than there is room for."""

import itertools
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from graphs.bench.kept import Kept
from graphs.bench.shown import ShownTable
from graphs.bench.text import table_lines, text


def shaped(columns: int, rows: int, cell: str, numeric: bool) -> ShownTable:
    heads = [f"head {at} of it" for at in range(columns)]
    return ShownTable("a table", heads, [numeric] * columns, [[f"{cell}{at}" for at in range(columns)]] * rows, "to note")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (3, 5), (9, 2), (9, 30), (14, 40), (2, 0)])
@pytest.mark.parametrize(("cell", "numeric"), [("12.5", True), ("some words of it ", False)])
def test_a_table_of_any_shape_fits_and_keeps_every_cell(width: int, columns: int, rows: int, cell: str, numeric: bool) -> None:
    table = shaped(columns, rows, cell, numeric)
    lines = table_lines(table, width)
    assert max(map(len, lines)) <= width
    told = " ".join(lines).split()
    for word in [*itertools.chain.from_iterable(row for row in table.rows), *table.heads, *(["note"] if rows else [])]:
        if rows:
            assert set(word.split()) <= {part.rstrip(";:") for part in told}


def test_few_rows_that_are_too_wide_are_turned_and_many_are_told_one_by_one() -> None:
    few = table_lines(shaped(9, 2, "1234567", True), 80)
    assert few[1] == "  head 0 of it  12345670  12345670"
    many = table_lines(shaped(9, 30, "1234567", True), 60)
    assert sum(line.startswith("  * head 0 of it 12345670; head 1") for line in many) == 30


def test_numbers_stand_at_the_right_under_heads_that_are_wrapped() -> None:
    table = ShownTable(
        "a table", ["what", "rate of all of them, items/s"], [False, True], [["a", "1.00"], ["bcd", "1,000"]], ""
    )
    assert table_lines(table, 22) == [
        "A table:",
        "        rate of",
        "         all of",
        "          them,",
        "  what  items/s",
        "  ----  -------",
        "  a        1.00",
        "  bcd     1,000",
    ]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_text_of_findings_fits_and_says_all(words: Kept, width: int) -> None:
    told = text(words, width)
    assert max(map(len, told.splitlines())) <= width
    flat = " ".join(told.split())
    for part in (
        words.findings.answer, "Claims: 2 hold, 1 has no bound", "holds words that came out: 40, must be 40",
        "no bound words a second:", "Each stage | node:", "a source takes nothing", "One graph, no model.",
        "headrace bench words", "JAX on cpu", "before,",
    ):  # fmt: skip
        assert part in flat
    assert flat.startswith("Words: words through a graph")
    assert "short settings" not in flat


def test_short_settings_are_said_at_once_and_failing_claims_marked(words: Kept) -> None:
    claims = [replace(words.findings.claims[0], wanted=3)]
    told = text(msgspec.structs.replace(words, short=True, findings=replace(words.findings, claims=claims)), 80)
    assert "Measured with the short settings" in told.split("Claims:")[0]
    assert re.search(r"^  does not  words that came out: 40, must be 3$", told, flags=re.MULTILINE)


def test_findings_of_nothing_but_an_answer_have_a_text(words: Kept) -> None:
    bare: Any = replace(words.findings, claims=[], tables=[], plots=[], notes=[])
    told = text(msgspec.structs.replace(words, findings=bare), 80)
    assert "Claims" not in told
    assert "To know" not in told
    assert bare.answer in " ".join(told.split())

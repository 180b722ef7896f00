"""The page says what the findings say, in Markdown that shows it as it is, and is the same bytes each time."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt

from graphs.bench.experiment import Claim, Column, Table
from graphs.bench.kept import Kept, read_folder, write_kept
from graphs.bench.page import page, write_page
from graphs.bench.suite import EXPERIMENTS

DOCS = Path(__file__).parents[3] / "docs"
HOSTILE = "A | b <script>alert(1)</script> *c* _d_ [e](f) # g \\ ~~h~~ $i$ &lt; 1. j"


class Shown(HTMLParser):
    """Text of a page as a reader sees it, by the tag that it stands in."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[list[str]] = []
        self.text = ""
        self.in_cell = False
        self.feed(MarkdownIt("commonmark").enable("table").render(markdown))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.cells.append([])
        elif tag in ("td", "th"):
            self.cells[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.in_cell:
            self.cells[-1][-1] += data


@pytest.fixture
def hostile(words: Kept) -> Kept:
    """Findings of which every text could be taken for Markdown."""
    columns = [Column("a", HOSTILE), Column("b", "plain_name")]
    claims = [Claim(HOSTILE, 1, 2), Claim("b", HOSTILE, HOSTILE, "equal")]
    tables = [Table(HOSTILE, columns, [{"a": HOSTILE, "b": "x_y"}], HOSTILE)]
    plots = [replace(words.findings.plots[0], title=HOSTILE, meaning=HOSTILE)]
    return msgspec.structs.replace(
        words, title=HOSTILE, question=HOSTILE,
        findings=replace(
            words.findings, answer=HOSTILE, claims=claims, tables=tables, plots=plots,
            notes=[HOSTILE, f"- {HOSTILE}", "1. one"],
        ),
    )  # fmt: skip


def test_what_findings_say_is_shown_as_it_is(hostile: Kept) -> None:
    shown = Shown(page([hostile], "bench")[0])
    assert "script" not in shown.tags
    assert {"em", "del", "h3"} & set(shown.tags) == set()
    assert shown.text.count(HOSTILE) == 13, "the long text that is as wanted is told once"
    assert [HOSTILE, "x_y"] in shown.cells
    assert "1. one" in shown.text


def test_every_table_is_one_and_has_all_of_its_cells(words: Kept) -> None:
    shown = Shown(page([words], "bench")[0])
    assert shown.tags.count("table") == 3
    assert {len(row) for row in shown.cells} == {5, 4}
    table = words.findings.tables[0]
    assert [str(row["stage"]) for row in table.rows] == [row[0] for row in shown.cells if row[0] in ("words", "loud", "kept")][
        -3:
    ]


def test_what_does_not_hold_is_told_first_and_in_the_table_of_all_claims(words: Kept) -> None:
    failing = msgspec.structs.replace(
        words, name="other", findings=replace(words.findings, claims=[Claim("words", 3, 4), Claim("words", 4, 4)])
    )
    text, _ = page([words, failing], "bench")
    first = text.split("## All claims")[0]
    assert "- [other](#other): words: 3, at least 4" in first
    assert first.count("\n- ") == 1
    assert "3 hold, 1 does not, 1 has no bound" in text.lower()
    assert text.count("| **does not hold** |") == 2, "of all claims, and of its experiment"
    assert "None: of 3 claims, 2 hold, 1 has no bound." in page([words], "bench")[0]


def test_a_page_has_a_section_a_command_and_pictures_for_each(words: Kept) -> None:
    second = msgspec.structs.replace(words, name="second", command="headrace bench second --words 3", short=True)
    text, pictures = page([words, second], "bench")
    assert re.findall("^## (.*)", text, flags=re.MULTILINE) == ["Claims that do not hold", "All claims", "words", "second"]
    assert "```\nheadrace bench second --words 3\n```" in text
    assert text.count("Measured with the short settings") == 1
    assert sorted(pictures) == ["second-1.svg", "words-1.svg"]
    assert re.findall(r"\]\((bench/[^)]+)\)", text) == ["bench/words-1.svg", "bench/second-1.svg"]
    assert "JAX on cpu" in text


def test_the_same_findings_give_the_same_bytes_read_or_measured(words: Kept, tmp_path: Path) -> None:
    write_kept(tmp_path, words)
    assert page(read_folder(tmp_path), "bench") == page([words], "bench") == page([words], "bench")


def test_a_page_is_written_with_its_pictures_and_old_ones_go(words: Kept, tmp_path: Path) -> None:
    doc = tmp_path / "docs" / "figures.md"
    folder = doc.with_suffix("")
    folder.mkdir(parents=True)
    for name in ("words-1.svg", "words-2.svg", "words-mine.svg", "others-1.svg"):
        (folder / name).write_text("old")
    written = write_page([words], doc)
    assert written == [doc, folder / "words-1.svg"]
    assert sorted(file.name for file in folder.iterdir()) == ["others-1.svg", "words-1.svg", "words-mine.svg"]
    assert "(figures/words-1.svg)" in doc.read_text()
    assert (folder / "words-1.svg").read_text().startswith("<svg xmlns=")


def published(read: Callable[[Path], Sequence[Kept]]) -> Sequence[Kept]:
    if not (DOCS / "bench.md").exists():
        pytest.skip("there is no page yet")
    return read(DOCS / "bench")


def test_the_page_of_the_documentation_is_what_its_findings_give() -> None:
    """To write it: headrace bench page docs/bench docs/bench.md"""
    text, pictures = page(published(lambda folder: read_folder(folder, EXPERIMENTS)), "bench")
    assert (DOCS / "bench.md").read_text() == text
    assert {file.name: file.read_text() for file in (DOCS / "bench").glob("*.svg")} == pictures


def test_the_page_of_the_documentation_has_no_first_looks() -> None:
    assert [kept.name for kept in published(read_folder) if kept.short] == []

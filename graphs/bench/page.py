"""Kept findings as a page of Markdown with pictures beside it. The same findings give the same bytes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from graphs.bench import shown
from graphs.bench.experiment import Claim
from graphs.bench.kept import Kept
from graphs.bench.shown import ShownTable
from graphs.report.picture import picture

_SPECIAL = re.compile(r"[\\|<>*\[\]#~$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|^[-+]|(?<=^\d)[.)]")
"""Characters that Markdown would take for something else. Paragraphs are not wrapped, so that none begins with others."""
_CODE = re.compile(r"(`[^`]+`)")
_INTRODUCTION = """\
What each experiment asks, what it found, and how to have it again: `headrace bench NAME` measures on your machine,
`headrace bench` lists what there is. This page is written by `headrace bench page` from the findings that lie beside it as
JSON, and nothing in it by hand. Rates are those of the machine that is named with them; claims are of ratios and of what
must be equal, so that they can be asked of any machine."""


def page(found: Sequence[Kept], pictures: str) -> tuple[str, dict[str, str]]:
    """The page and its pictures.

    Args:
        found: in the order in which they are shown.
        pictures: folder of the pictures, as the page names it.

    Returns:
        The text, and each picture by the name of its file.
    """
    files = {f"{kept.name}-{at}.svg": plot for kept in found for at, plot in enumerate(shown.plots(kept), 1)}
    claims = [(kept, one) for kept in found for one in kept.findings.claims]
    lines = ["# The benchmark", "", _INTRODUCTION, "", *_failing(claims), "", *_overview(claims)]
    for kept in found:
        lines += ["", *_section(kept, pictures)]
    return "\n".join([*lines, ""]), {name: picture(plot) for name, plot in files.items()}


def write_page(found: Sequence[Kept], doc: Path) -> list[Path]:
    """Write the page, and its pictures into the folder of its name beside it; take away pictures it no longer has.

    Args:
        found: in the order in which they are shown.
        doc: file of the page, such as ``docs/bench.md``.

    Returns:
        What was written, the page first.

    Raises:
        OSError: something cannot be written.
    """
    folder = doc.with_suffix("")
    text, pictures = page(found, folder.name)
    folder.mkdir(parents=True, exist_ok=True)
    for kept in found:
        for old in folder.glob(f"{kept.name}-*.svg"):
            if old.name not in pictures and re.fullmatch(r"\d+", old.stem.removeprefix(f"{kept.name}-")):
                old.unlink()
    written = [_write(folder / name, content) for name, content in pictures.items()]
    return [_write(doc, text), *written]


def _write(file: Path, content: str) -> Path:
    part = file.with_suffix(".part")
    part.write_text(content, encoding="utf-8")
    return part.replace(file)


def _failing(claims: Sequence[tuple[Kept, Claim]]) -> Iterator[str]:
    """What did not come out as wanted, first of all."""
    failing = [(kept, shown.claim(one)) for kept, one in claims if one.holds is False]
    yield "## Claims that do not hold"
    yield ""
    if not failing:
        yield f"None: of {len(claims)} claims, {shown.counted(one for _, one in claims)}."
    for kept, one in failing:
        yield f"- [{kept.name}](#{kept.name}): {_said(one.what)}: {_said(one.got)}, {_said(one.wanted)}"


def _overview(claims: Sequence[tuple[Kept, Claim]]) -> Iterator[str]:
    yield "## All claims"
    yield ""
    yield f"{shown.counted(one for _, one in claims).capitalize()}."
    yield ""
    rows = [(f"[{kept.name}](#{kept.name})", *_cells(one, brief=True)) for kept, one in claims]
    yield from _rows(("experiment", "claim", "measured", "wanted", ""), rows, "lllll")


def _cells(one: Claim, *, brief: bool = False) -> tuple[str, str, str, str]:
    told = shown.claim(one)
    if brief and len(told.got) > shown.LONG:
        told = replace(told, got="as wanted" if one.holds else "told below", wanted="")
    mark = {"holds": "holds", "does not": "**does not hold**", "no bound": "no bound"}[told.mark]
    return _said(told.what), _said(told.got), _said(told.wanted), mark


def _section(kept: Kept, pictures: str) -> Iterator[str]:
    found = kept.findings
    yield f"## {kept.name}"
    yield ""
    yield f"**{_said(shown.sentence(kept.title))}**"
    yield ""
    yield _said(kept.question)
    yield ""
    if kept.short:
        yield "Measured with the short settings: a first look, whose claims need not hold."
        yield ""
    yield f"> {_said(found.answer)}"
    if found.claims:
        yield ""
        yield from _rows(("claim", "measured", "wanted", ""), [_cells(one) for one in found.claims], "llll")
    for table in found.tables:
        yield ""
        yield from _table(shown.table(table))
    for at, plot in enumerate(shown.plots(kept), 1):
        yield ""
        yield f"![{_said(plot.title)}: {_said(plot.meaning)}]({pictures}/{kept.name}-{at}.svg)"
    if found.notes:
        yield ""
        yield from (f"- {_said(note)}" for note in found.notes)
    yield ""
    yield from _circumstances(kept)


def _circumstances(kept: Kept) -> Iterator[str]:
    (_, command), *facts = shown.circumstances(kept)
    yield "```"
    yield command
    yield "```"
    yield ""
    yield _said("; ".join(f"{name}: {said}" for name, said in facts) + ".")


def _table(one: ShownTable) -> Iterator[str]:
    yield f"{_said(shown.sentence(one.title))}:"
    yield ""
    yield from _rows(
        [_said(head) for head in one.heads],
        [[_said(value) for value in row] for row in one.rows],
        ["r" if numeric else "l" for numeric in one.numeric],
    )
    if one.note:
        yield ""
        yield _said(shown.sentence(one.note) + ("" if one.note.endswith(".") else "."))


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]], sides: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('--:' if side == 'r' else '---' for side in sides)}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _said(words: str) -> str:
    """Words as Markdown that shows them as they are; what stands between backticks stays code."""
    parts = _CODE.split(" ".join(words.split()))
    return "".join(
        part.replace("|", "\\|") if at % 2 else _SPECIAL.sub(r"\\\g<0>", part) for at, part in enumerate(parts)
    )  # fmt: skip

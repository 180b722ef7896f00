"""Findings as plain text of a width: on a terminal, in a log. Colour is for whoever prints it."""

import textwrap
from collections.abc import Iterator, Sequence

from graphs.bench import shown
from graphs.bench.kept import Kept
from graphs.bench.shown import ShownClaim, ShownTable

WIDEST = 110
"""Columns of prose; tables may be wider."""
_INDENT, _GAP, _MARK = 2, 2, 10
_MOST_LINES = 3
"""Lines of a cell, above which a table is easier to read in another form."""


def text(kept: Kept, width: int) -> str:
    """The answer, then claims, tables, what to know, and how it was measured.

    Args:
        kept: findings.
        width: columns that there are.
    """
    found = kept.findings
    lines = [*prose(shown.sentence(kept.title), width), "", *prose(found.answer, width)]
    if kept.short:
        lines += ["", *prose("Measured with the short settings: a first look, whose claims need not hold.", width)]
    if found.claims:
        lines += ["", f"Claims: {shown.counted(found.claims)}"]
        lines += [line for one in found.claims for line in claim_lines(shown.claim(one), width)]
    for one in found.tables:
        lines += ["", *table_lines(shown.table(one), width)]
    if found.notes:
        lines += ["", "To know:"]
        lines += [line for note in found.notes for line in prose(note, width, "- ")]
    lines += ["", "Measured:"]
    lines += [line for name, said in shown.circumstances(kept) for line in prose(said, width, f"{name:<{_MARK}}")]
    return "\n".join(lines)


def prose(words: str, width: int, first: str = "") -> list[str]:
    """Wrapped words.

    Args:
        words: of one paragraph.
        width: columns that there are.
        first: stands before them, above an indent; empty for none of both.
    """
    start = " " * _INDENT + first if first else ""
    return textwrap.wrap(
        words, min(width, WIDEST), initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    ) or [start.rstrip()]  # fmt: skip


def claim_lines(one: ShownClaim, width: int) -> list[str]:
    """Whether it holds, what was claimed, and what came out."""
    return prose(f"{one.what}: {', '.join(filter(None, [one.got, one.wanted]))}", width, f"{one.mark:<{_MARK}}")


def table_lines(one: ShownTable, width: int) -> list[str]:
    """As columns where they find room, else turned on its side, else row by row with the head before each value."""
    body = _upright(one, width) or _turned(one, width) or list(_blocks(one, width))
    note = prose(one.note, width, "- ") if one.note else []
    return [*prose(f"{shown.sentence(one.title)}:", width), *body, *note]


def _upright(one: ShownTable, width: int) -> list[str]:
    """A row a row, texts wrapped where they must be; nothing where that is not enough."""
    columns = [[row[at] for row in one.rows] for at in range(len(one.heads))]
    least = [
        max(map(len, [*head.split(), *(column if right else " ".join(column).split()), ""]))
        for head, column, right in zip(one.heads, columns, one.numeric, strict=True)
    ]
    wanted = [max(low, *map(len, column)) if column else low for low, column in zip(least, columns, strict=True)]
    sizes = _fitted(wanted, least, width - _INDENT - _GAP * (len(wanted) - 1))
    if sizes is None:
        return []
    heads = _row(one.heads, sizes, one.numeric, low=True)
    rows = [_row(row, sizes, one.numeric) for row in one.rows]
    if any(len(row) > _MOST_LINES for row in rows):
        return []
    rule = " " * _INDENT + (" " * _GAP).join("-" * size for size in sizes)
    return [*heads, rule, *(line for row in rows for line in row)]


def _fitted(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Sizes of columns in a room, the widest made smaller first; ``None`` where they find none."""
    sizes = list(wanted)
    while sum(sizes) > room:
        at = max((at for at in range(len(sizes)) if sizes[at] > least[at]), key=sizes.__getitem__, default=None)
        if at is None:
            return None
        sizes[at] -= 1
    return sizes


def _turned(one: ShownTable, width: int) -> list[str]:
    """A column for each row, of which there are few; nothing where they find no room."""
    texts = [[head, *values] for head, values in zip(one.heads, zip(*one.rows, strict=True), strict=True)] if one.rows else []
    if not texts:
        return []
    least = [max(map(len, " ".join(column[0] for column in texts).split())), *(
        max(len(column[at]) for column in texts) for at in range(1, len(one.rows) + 1)
    )]  # fmt: skip
    sizes = _fitted([max(len(column[0]) for column in texts), *least[1:]], least, width - _INDENT - _GAP * len(one.rows))
    if sizes is None:
        return []
    return [line for column in texts for line in _row(column, sizes, [False] + [True] * len(one.rows))]


def _row(cells: Sequence[str], sizes: Sequence[int], right: Sequence[bool], *, low: bool = False) -> list[str]:
    """Cells beside one another, on as many lines as the highest takes.

    Args:
        cells: texts.
        sizes: columns of each.
        right: which stand at the right.
        low: whether a cell of few lines has them at the bottom.
    """
    wrapped = [textwrap.wrap(cell, size, break_on_hyphens=False) for cell, size in zip(cells, sizes, strict=True)]
    height = max(map(len, wrapped), default=0)
    filled = [[""] * (height - len(lines)) + lines if low else lines + [""] * (height - len(lines)) for lines in wrapped]
    return [
        (" " * _INDENT + (" " * _GAP).join(
            text.rjust(size) if side else text.ljust(size) for text, size, side in zip(line, sizes, right, strict=True)
        )).rstrip()
        for line in zip(*filled, strict=True)
    ]  # fmt: skip


def _blocks(one: ShownTable, width: int) -> Iterator[str]:
    for row in one.rows:
        parts = [f"{head} {value}".strip() for head, value in zip(one.heads, row, strict=True) if value]
        yield from prose("; ".join(parts), width, "* ")

"""Findings as plain text of a width: on a terminal, in a log. Colour is for whoever prints it."""

import textwrap
from collections.abc import Iterator, Sequence

from graphs.bench import shown
from graphs.bench.kept import Kept
from graphs.bench.shown import ShownClaim, ShownTable

WIDEST = 110
"""Columns of prose; tables may be wider."""
_INDENT, _MARK = 2, 10


def text(kept: Kept, width: int) -> str:
    """The answer, then claims, tables, what to know, and how it was measured.

    Args:
        kept: findings.
        width: columns that there are.
    """
    found = kept.findings
    lines = [*prose(kept.title, width), "", *prose(found.answer, width)]
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
    """As columns where they find room, else row by row with the head before each value."""
    columns = list(zip(*one.rows, strict=True)) if one.rows else [()] * len(one.heads)
    sizes = [max(map(len, [*head.split(), *column, ""])) for head, column in zip(one.heads, columns, strict=True)]
    body = _columns(one, sizes) if _INDENT + sum(sizes) + 2 * (len(sizes) - 1) <= width else _blocks(one, width)
    title = one.title[:1].upper() + one.title[1:]
    return [*prose(f"{title}:", width), *body, *(prose(one.note, width, "- ") if one.note else [])]


def _columns(one: ShownTable, sizes: Sequence[int]) -> Iterator[str]:
    heads = [textwrap.wrap(head, size) for head, size in zip(one.heads, sizes, strict=True)]
    height = max(map(len, heads), default=0)
    padded = [[""] * (height - len(head)) + head for head in heads]
    lines = list(zip(*padded, strict=True))
    for row in [*lines, ["-" * size for size in sizes], *one.rows]:
        cells = (value.rjust(size) if right else value.ljust(size)
                 for value, size, right in zip(row, sizes, one.numeric, strict=True))  # fmt: skip
        yield (" " * _INDENT + "  ".join(cells)).rstrip()


def _blocks(one: ShownTable, width: int) -> Iterator[str]:
    for row in one.rows:
        parts = [f"{head} {value}".strip() for head, value in zip(one.heads, row, strict=True) if value]
        yield from prose("; ".join(parts), width, "* ")

"""Rows of a JSONL file, all checked before the first is used. Not a source: ``jsonl.py`` and ``examples.py`` use it.

A file with broken rows is refused as a whole, with every broken row told at once (the first ten), so that it is mended once.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

Row = TypeVar("Row", bound=msgspec.Struct)
Value = TypeVar("Value")

MAX_SHOWN = 10


class RowError(ValueError):
    """A file with rows that cannot be used."""


def read_rows(
    path: str | Path, row: type[Row], convert: Callable[[Row], Value], name: Callable[[Value], str], *, min_rows: int = 1
) -> tuple[Value, ...]:
    """Every row of a file. Blank lines are passed over.

    Args:
        path: UTF-8, one JSON object a line.
        row: what a row must be; unknown fields are refused if the struct forbids them.
        convert: a row as the value wanted; raises ``ValueError`` for one that cannot be used.
        name: the value's name, which must be unique in the file.
        min_rows: fewer are refused.

    Raises:
        RowError: rows are broken or too few; names the file, the rows, what was expected and what was found.
        OSError: there is no such file, or it cannot be read.
    """
    decoder = msgspec.json.Decoder(row)
    values: list[Value] = []
    faults: list[str] = []
    first_row: dict[str, int] = {}
    with _opened(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = convert(decoder.decode(line))
                earlier = first_row.setdefault(name(value), number)
                if earlier != number:
                    raise ValueError(f"id: expected a name used once, got {name(value)!r}, as in row {earlier}")
                values.append(value)
            except (ValueError, RecursionError) as error:
                faults.append(f"row {number}: {error}; got {line.decode(errors='replace').strip()[:120]}")
    if faults:
        raise RowError(_told(path, row, faults))
    if len(values) < min_rows:
        raise RowError(f"expected at least {min_rows} rows; got {len(values)}, in {path}; add rows or name another file")
    return tuple(values)


def _opened(path: str | Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise type(error)(f"expected a file of rows, got '{path}': {error.strerror}; name another file") from error


def _told(path: str | Path, row: type[msgspec.Struct], faults: list[str]) -> str:
    fields = ", ".join(
        f"{field.name}" if field.required else f"{field.name} (optional)" for field in msgspec.structs.fields(row)
    )
    what = f"expected rows that are JSON objects with the fields {fields}; got {len(faults)} that are not, in {path}"
    return shown_faults(what, faults)


def shown_faults(what: str, faults: Sequence[str]) -> str:
    """What is wrong with a set of rows, and with the first of them."""
    more = f"\n  and {len(faults) - MAX_SHOWN} more" if len(faults) > MAX_SHOWN else ""
    shown = "\n  ".join(faults[:MAX_SHOWN])
    return f"{what}:\n  {shown}{more}\ncorrect or remove these rows"

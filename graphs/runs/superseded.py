"""Cuts a file of rows back to where it was at a commit; what lies behind that is moved to ``superseded.jsonl``, not lost.

A kill in the middle of it does no harm: the rows are there first, and whoever does it again finds them.
"""

import os
from pathlib import Path
from typing import Any

import msgspec

SUPERSEDED = "superseded.jsonl"
"""Rows that were written after the commit a run went on from: each as ``{"file": ..., "row": ...}``."""


def cut_back(file: Path, size: int) -> int:
    """Cut a file back.

    Args:
        file: of rows, a line each; the last may be torn.
        size: bytes that stay.

    Returns:
        Bytes that are missing of those, as after a power cut; 0 where none are.
    """
    there = file.stat().st_size
    if there <= size:
        return size - there
    with file.open("rb") as rows:
        rows.seek(size)
        block = b"".join(_moved(file.name, line) for line in rows.read().splitlines())
    aside = file.with_name(SUPERSEDED)
    if not _ends_with(aside, block):
        _append(aside, block)
    os.truncate(file, size)
    return 0


def _moved(name: str, line: bytes) -> bytes:
    try:
        row: dict[str, Any] = {"row": msgspec.json.decode(line)}
    except msgspec.DecodeError:
        row = {"torn": line.decode(errors="replace")}
    return msgspec.json.encode({"file": name, **row}) + b"\n"


def _append(file: Path, block: bytes) -> None:
    torn = file.exists() and not _ends_with(file, b"\n") and file.stat().st_size > 0
    with file.open("ab") as rows:
        rows.write(b"\n" + block if torn else block)
        rows.flush()
        os.fsync(rows.fileno())


def _ends_with(file: Path, block: bytes) -> bool:
    if not file.exists() or file.stat().st_size < len(block):
        return False
    with file.open("rb") as rows:
        rows.seek(-len(block), os.SEEK_END)
        return rows.read() == block

"""JSON of what a run tells: rows and summaries. Files are elsewhere."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

_NAMED = {str(number): number for number in (math.nan, math.inf, -math.inf)}


def encode(content: Any) -> bytes:
    """JSON of anything a run tells. A number that is not finite becomes its name, since JSON has none for it."""
    return msgspec.json.encode(_finite(msgspec.to_builtins(content, enc_hook=_plain)))


def decode(line: bytes) -> dict[str, Any]:
    """A row as it was: the names of numbers that are not finite are those numbers again.

    Raises:
        msgspec.DecodeError: it is torn, or no row.
    """
    row = msgspec.json.decode(line, type=dict[str, Any])
    return {name: _NAMED[value] if isinstance(value, str) and value in _NAMED else value for name, value in row.items()}


def rows_in(file: Path, size: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file, passing over one that is torn; none where there is no file.

    Args:
        file: with a row in each line.
        size: bytes of it that are read; ``None`` for all.
    """
    if not file.exists():
        return
    with file.open("rb") as rows:
        content = rows.read(-1 if size is None else size)
    for line in content.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            yield decode(line)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"expected something JSON can hold, got {type(value).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value

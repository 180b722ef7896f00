"""Opening a GGUF file, once for everybody who reads from it. What is in it is for ``models/gguf.py`` and ``text/``."""

import functools
from pathlib import Path
from typing import Any


@functools.lru_cache(maxsize=1)
def open_gguf(path: Path) -> Any:
    """The file's ``gguf.GGUFReader``. Takes about two seconds, most of it for the token list, so the last one is kept.

    Raises:
        ImportError: the ``gguf`` package is not installed.
        FileNotFoundError: there is no such file.
        ValueError: it is no GGUF file.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ImportError(f"expected the gguf package to read {path}, got none; install headrace[gguf]") from error
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(_told(path, error)) from error


def _told(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        if file.read(4) == b"GGUF":
            got = f"one of {path.stat().st_size} bytes that is cut or damaged ({error})"
            return f"expected a whole GGUF file, got {got}, in {path}; fetch it again"
    return f"expected a GGUF file, got '{path}', which is none ({error}); check the path"

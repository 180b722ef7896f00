"""Tools that look into one folder: list its files, read one, search them all. They change nothing and see nothing outside.

Paths are walked name by name from the folder, and no name may be a symbolic link: so none leads out of it, also where a program
changes the folder meanwhile. Search is for plain text, since a regular expression can be written that never ends.
"""

import contextlib
import errno
import fnmatch
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import anyio.from_thread

from stages.tools.methods import MethodTools

MAX_LISTED = 500
"""Files in one answer."""
MAX_MATCHES = 100
"""Lines in one answer."""
MAX_LINE_CHARS = 300
"""Of one line, in characters."""
MAX_FILE_BYTES = 10 * 2**20
"""Of a file that is read; of a larger one only so much is looked at."""
MAX_ENTRIES = 50_000
"""Files and folders looked at for one answer."""
MAX_DEPTH = 32
"""Folders within folders."""


def folder_tools(folder: Path | str, **limits: Any) -> MethodTools:
    """The tools ``list_files``, ``read_file`` and ``search_files``.

    Args:
        folder: what they see.
        limits: fields of ``ToolLimits``. A search ends soon after its deadline.

    Raises:
        NotADirectoryError: there is no such folder.
    """
    top = Path(folder)
    if not top.is_dir():
        raise NotADirectoryError(
            f"expected a folder; got {top}, which is none, in folder_tools(folder); name one that is there"
        )
    return MethodTools(lambda: FolderFiles(top), of=FolderFiles, **{"max_output_tokens": 1024, **limits})


class FolderFiles:
    """What a model may do with a folder; for programs, ``folder_tools``."""

    def __init__(self, folder: Path):
        """See ``folder_tools``."""
        self._folder = folder

    def list_files(self, pattern: str = "*") -> str:
        """List files, with their sizes.

        Args:
            pattern: a path with wildcards, for example *.py or src/*; * stands for any text, folders included.
        """
        found = []
        with _opened(self._folder, os.O_DIRECTORY) as top:
            for path, size, _ in _walk(top):
                if fnmatch.fnmatchcase(path, pattern):
                    found.append(f"{_on_one_line(path)} ({size} bytes)")
        rest = [f"and {len(found) - MAX_LISTED} more; narrow the pattern"] if len(found) > MAX_LISTED else []
        return "\n".join(found[:MAX_LISTED] + rest) or "no file"

    def read_file(self, path: str, first_line: int = 1, num_lines: int = 200) -> str:
        """Read lines of a text file, each with its number.

        Args:
            path: path of the file in the folder.
            first_line: number of the first line, from 1.
            num_lines: how many lines.
        """
        if first_line < 1 or num_lines < 1:
            raise ValueError(
                f"expected lines from 1 and at least 1 of them, got first_line={first_line}, num_lines={num_lines}"
            )
        with _opened(self._folder, os.O_DIRECTORY) as top, _file(top, path) as file:
            lines = [f"{n}\t{line}" for n, line in _lines(file) if first_line <= n < first_line + num_lines]
        return "\n".join(lines) or f"the file has fewer than {first_line} lines"

    def search_files(self, text: str, pattern: str = "*", ignore_case: bool = False) -> str:
        """Find the lines that contain a text, as path:line: content.

        Args:
            text: what to look for, word for word.
            pattern: which files, as a path with wildcards, for example *.py.
            ignore_case: take capitals for small letters.
        """
        if not text:
            raise ValueError("expected a text to look for, got none")
        found: list[str] = []
        wanted = text.casefold() if ignore_case else text
        with _opened(self._folder, os.O_DIRECTORY) as top:
            for path, _, folder in _walk(top):
                if fnmatch.fnmatchcase(path, pattern):
                    found += _matches(folder, path, wanted, ignore_case, MAX_MATCHES + 1 - len(found))
                if len(found) > MAX_MATCHES:
                    return "\n".join([*found[:MAX_MATCHES], "and more; narrow the search"])
        return "\n".join(found) or "no match"


def _walk(top: int) -> Iterator[tuple[str, int, int]]:
    """Path, size and open parent of each plain file, in order of names. One that is gone or not ours to read is left out."""
    left = MAX_ENTRIES

    def inside(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int, int]]:
        nonlocal left
        with os.scandir(folder) as listing:
            entries = sorted(itertools.islice(listing, left), key=lambda entry: entry.name)
        left -= len(entries)
        for entry in entries:
            _heed_cancellation()
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    yield prefix + entry.name, about.st_size, folder
                elif stat.S_ISDIR(about.st_mode) and depth < MAX_DEPTH:
                    with _opened(entry.name, os.O_DIRECTORY, folder) as inner:
                        yield from inside(inner, f"{prefix}{entry.name}/", depth + 1)

    return inside(top, "", 1)


def _matches(folder: int, path: str, wanted: str, ignore_case: bool, most: int) -> list[str]:
    """The first lines of a file that contain a text; none of a file that is no text, or is gone."""
    found: list[str] = []
    with contextlib.suppress(OSError), _plain(path.rpartition("/")[2], folder) as opened:
        for number, line in _lines(opened):
            if "\0" in line:
                return []
            if wanted in (line.casefold() if ignore_case else line):
                found.append(f"{_on_one_line(path)}:{number}: {line}")
                if len(found) == most:
                    break
    return found


def _lines(opened: int) -> Iterator[tuple[int, str]]:
    """Number and beginning of each line, as far as ``MAX_FILE_BYTES``."""
    left = MAX_FILE_BYTES
    with os.fdopen(os.dup(opened), "rb") as file:
        number = 0
        while left > 0 and (line := file.readline(left)):
            number, left = number + 1, left - len(line)
            if number % 1000 == 0:
                _heed_cancellation()
            yield number, line.decode(errors="replace").rstrip("\r\n")[:MAX_LINE_CHARS]


@contextlib.contextmanager
def _opened(name: str | Path, flags: int, folder: int | None = None) -> Iterator[int]:
    # Not waiting: a pipe would hold the thread until somebody writes.
    opened = os.open(
        name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags | (0 if folder is None else os.O_NOFOLLOW), dir_fd=folder
    )
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def _file(top: int, path: str) -> Iterator[int]:
    """Open a plain file below an open folder.

    Raises:
        ValueError: the path leads out, through a link, or to something else.
        OSError: there is no such file.
    """
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or parts[0].startswith("/"):
        raise ValueError(f"expected a path inside the folder, got {path[:MAX_LINE_CHARS]}")
    with contextlib.ExitStack() as stack:
        try:
            for part in parts[:-1]:
                top = stack.enter_context(_opened(part, os.O_DIRECTORY, top))
            opened = stack.enter_context(_plain(parts[-1], top))
        except OSError as error:
            told = "is a link, or lies behind one" if error.errno == errno.ELOOP else (error.strerror or "").lower()
            raise ValueError(f"{path[:MAX_LINE_CHARS]}: {told}") from error
        yield opened


@contextlib.contextmanager
def _plain(name: str, folder: int) -> Iterator[int]:
    """Open a plain file in an open folder.

    It is looked at before, since opening a pipe or a device is felt at its other end, and after, since a program may have put
    another thing in its place.

    Raises:
        OSError: it is something else, or there is nothing.
    """
    _check_plain(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    with _opened(name, 0, folder) as opened:
        _check_plain(os.fstat(opened).st_mode)
        yield opened


def _check_plain(mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "expected a file, got something else")


def _on_one_line(path: str) -> str:
    """The path with escapes for line breaks and whatever else cannot be printed, so that no name reads as a further line."""
    return path if path.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in path)


def _heed_cancellation() -> None:
    """End the thread's work where nobody waits for it any more."""
    with contextlib.suppress(RuntimeError):  # not on a thread of a tool
        anyio.from_thread.check_cancelled()

"""The files of one trace: the one that grows, and those before it as far as there is room. Names and sizes, no packets.

A trace that outgrows a file goes on in the next: ``run.pftrace``, ``run.part1.pftrace``, ``run.part2.pftrace``. A run that was
started again has a set of them for each start: ``run.1.pftrace``, ``run.1.part1.pftrace``. One bound holds for all of them; the
oldest gives way, but for the first, which shows how the run began.
"""

import re
from pathlib import Path
from typing import NamedTuple

_NAME, _SUFFIX = "run", ".pftrace"
_PART_BYTES = 128_000_000
"""A size at which the viewer is still quick."""


class Part(NamedTuple):
    """A file of a trace, in the order of time."""

    attempt: int
    number: int
    path: Path


def trace_file(folder: Path, attempt: int) -> Path:
    """The file in which the trace of one start of a run begins: ``run.pftrace``, ``run.1.pftrace``, and so on."""
    return folder / (f"{_NAME}.{attempt}{_SUFFIX}" if attempt else f"{_NAME}{_SUFFIX}")


def parts_of_run(folder: Path) -> list[Part]:
    """All files of a run's trace."""
    return parts_beside(trace_file(folder, 0))


def parts_beside(path: Path) -> list[Part]:
    """All files of the trace that a file is of, of all starts, oldest first."""
    name, suffix = re.sub(r"(\.\d+)?(\.part\d+)?$", "", path.stem), path.suffix
    pattern = re.compile(rf"{re.escape(name)}(?:\.(\d+))?(?:\.part(\d+))?{re.escape(suffix)}")
    matches = [(pattern.fullmatch(file.name), file) for file in path.parent.glob("*")]
    return sorted(Part(int(match[1] or 0), int(match[2] or 0), file) for match, file in matches if match is not None)


def missing_between(before: Part, after: Part, first: Path) -> list[str]:
    """Names of the files of a trace that must have been between two that follow on each other here.

    Args:
        before: the one.
        after: the other.
        first: file in which the trace of the first start begins.
    """
    if before.attempt == after.attempt:
        return [_named(first, after.attempt, number) for number in range(before.number + 1, after.number)]
    # How many files a start had of which none is left, nobody knows: it had the first.
    starts = [_named(first, attempt, 0) for attempt in range(before.attempt + 1, after.attempt)]
    return [*starts, *(_named(first, after.attempt, number) for number in range(after.number))]


def _named(first: Path, attempt: int, number: int) -> str:
    part = f".part{number}" if number else ""
    return f"{first.stem}{f'.{attempt}' if attempt else ''}{part}{first.suffix}"


class Parts:
    """Writes the files of one start of a run, one after the other.

    Args:
        path: the first of them; one that exists is replaced, and those that follow on it are removed.
        max_bytes: of all files of the trace together, of earlier starts too, give or take what one write adds.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._part_bytes = min(_PART_BYTES, max_bytes // 4)
        self._number = self._size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether the next packets belong into another file."""
        return self._size_bytes >= self._part_bytes

    def open(self) -> None:
        """Begin the first file.

        Raises:
            OSError: it cannot be written.
        """
        for part in parts_beside(self._path):
            if part.number and part.path.name.startswith(f"{self._path.stem}.part"):
                part.path.unlink()
        self._begin(self._path)

    def turn(self) -> None:
        """Go on in another file, and remove the oldest where there is no room for it.

        Raises:
            OSError: it cannot be written.
        """
        self._file.close()
        self._number += 1
        self._begin(self._path.with_name(f"{self._path.stem}.part{self._number}{self._path.suffix}"))

    def write(self, packets: bytes) -> None:
        """Append whole packets."""
        rest = memoryview(packets)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size_bytes += len(packets)

    def close(self) -> None:
        """Close the file. Harmless the second time."""
        self._file.close()

    def _begin(self, path: Path) -> None:
        self._make_room(path)
        self._file = path.open("wb", buffering=0)
        self._size_bytes = 0

    def _make_room(self, path: Path) -> None:
        there = [part.path for part in parts_beside(self._path) if part.path != path]
        sizes = [each.stat().st_size for each in there]
        over = sum(sizes) + self._part_bytes - self._max_bytes
        for each, size in zip(there[1:], sizes[1:], strict=True):
            if over <= 0:
                return
            each.unlink()
            over -= size

"""A commit on the disk, to be read: what it says of itself, whether it is whole, and which of those in a folder to go on from.

Knows nothing of how commits are made, see ``_commits.py``; anybody may read, also while another process writes.
"""

import contextlib
import fcntl
import hashlib
import logging
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from .._errors import CannotResume
from ._points import reach

FORMAT = 1
MANIFEST, MOMENT = "manifest.json", "moment"
_BLOCK_BYTES = 1 << 20
_LOG = logging.getLogger("headrace")


class Manifest(msgspec.Struct, frozen=True):
    """What a commit says of itself."""

    format: int
    """Of the folder; another is refused."""
    number: int
    """Of the commit: above those before it."""
    time: str
    """When, by the clock on the wall."""
    about: dict[str, Any]
    """What the program said of itself, plain values."""
    graph: dict[str, Any] | None
    """The graph as data, see ``outline``; ``None`` for a commit between two graphs."""
    moment_bytes: int
    moment_digest: str
    """Of the file ``moment``; empty where there is no graph."""
    saved: tuple[str, ...]
    """Folders in it, of what saved more than its state."""
    files: dict[str, tuple[int, int]]
    """Bytes and checksum of each file in these folders, by its path: what is missing, cut short or damaged is seen."""


@dataclass(frozen=True)
class Commit:
    """A complete commit.

    Attributes:
        folder: where it lies.
        manifest: what it says of itself.
    """

    folder: Path
    manifest: Manifest

    @property
    def number(self) -> int:
        """Its number."""
        return self.manifest.number

    def read_moment(self) -> bytes:
        """Read the moment.

        Raises:
            CannotResume: it holds none, or damaged bytes.
        """
        if self.manifest.graph is None:
            raise CannotResume(f"{self.folder}: expected the moment of a graph, got a commit between two; start the next graph")
        try:
            content = (self.folder / MOMENT).read_bytes()
        except FileNotFoundError:
            content = b""
        if digest(content) != self.manifest.moment_digest:
            got = f"{len(content)} bytes that are not the {self.manifest.moment_bytes} of then"
            raise CannotResume(f"{self.folder / MOMENT}: expected what was written, got {got}; {_REMEDY}")
        return content

    def saved(self, name: str) -> Path | None:
        """The folder of what saved more than its state; ``None`` where it did not."""
        return self.folder / name if name in self.manifest.saved else None

    def check(self) -> None:
        """Look whether all of it is there, and the moment is as it was written.

        Raises:
            CannotResume: something is missing, cut short or damaged.
        """
        if self.manifest.graph is not None:
            self.read_moment()
        for path, (size, found) in self.manifest.files.items():
            try:
                got = f"{(self.folder / path).stat().st_size} bytes"
                if got == f"{size} bytes" and checksum(self.folder / path) != found:
                    got = "as many that are damaged"
            except OSError as error:
                got = str(error.strerror)
            if got != f"{size} bytes":
                raise CannotResume(f"{self.folder / path}: expected {size} bytes, got {got}; {_REMEDY}")

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Keep it from being removed meanwhile.

        Raises:
            FileNotFoundError: it was removed before.
        """
        with (self.folder / MANIFEST).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if not (self.folder / MANIFEST).exists():
                raise FileNotFoundError(f"{self.folder}: expected a commit, got one that was just removed; take the latest")
            reach("commit.reading")
            yield


_REMEDY = "resume from another commit, or put back what is missing"


def complete(folder: Path) -> list[Commit]:
    """The complete commits in a folder, oldest first. What has a manifest that cannot be read is not among them."""
    return _listed(folder)[0]


def newest(folder: Path) -> Commit | None:
    """The newest commit that is whole, to go on from; ``None`` where there is none at all.

    One that is damaged, or of another version of this format, is passed over with a warning in the log.

    Raises:
        CannotResume: there are some, and none of them is whole.
    """
    commits, faults = _listed(folder)
    for commit in reversed(commits):
        try:
            commit.check()
        except CannotResume as error:
            if not commit.folder.exists():  # removed since, so there are newer ones
                return newest(folder)
            faults[commit.number] = error
            continue
        newer = [str(fault) for number, fault in sorted(faults.items()) if number > commit.number]
        if newer:
            _LOG.warning("commit %s is taken, since what is newer is not whole: %s", commit.folder, "; ".join(newer))
        return commit
    if faults:
        told = "; ".join(str(fault) for _, fault in sorted(faults.items()))
        raise CannotResume(f"{folder}: expected a commit that is whole, got none of {len(faults)}: {told}")
    return None


def digest(content: bytes) -> str:
    """What tells one moment from another."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def checksum(path: Path) -> int:
    """CRC-32 of a file: against damage by chance, and for a fraction of the time that a digest of gigabytes takes."""
    found = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            found = zlib.crc32(block, found)
    return found


def _listed(folder: Path) -> tuple[list[Commit], dict[int, CannotResume]]:
    """The commits with a manifest, oldest first, and by number what is wrong with the manifests of others."""
    found: dict[int, Commit] = {}
    faults: dict[int, CannotResume] = {}
    for path in folder.glob("*"):
        if path.name.isdecimal():
            try:
                found[int(path.name)] = Commit(path, _manifest(path))
            except (FileNotFoundError, NotADirectoryError):
                if any(path.glob("*")):  # else it was just removed, or is no commit
                    faults[int(path.name)] = CannotResume(f"{path / MANIFEST}: expected a manifest, got none; {_REMEDY}")
            except OSError as error:
                faults[int(path.name)] = CannotResume(f"{path}: expected a commit that can be read, got '{error.strerror}'")
            except CannotResume as error:
                faults[int(path.name)] = error
    return [found[number] for number in sorted(found)], faults


def _manifest(path: Path) -> Manifest:
    content = (path / MANIFEST).read_bytes()
    try:
        got = msgspec.json.decode(content, type=dict[str, Any]).get("format")
        if got == FORMAT:
            return msgspec.json.decode(content, type=Manifest)
        found = f"format {got}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = f"{len(content)} bytes of something else ({error})"
    raise CannotResume(
        f"{path / MANIFEST}: expected a manifest of format {FORMAT}, got {found}; resume with the version that wrote it, or "
        "from the commit before it"
    )

"""The commits of a run, each a folder that is there as a whole or not at all. Knows files, and neither graphs nor stages.

``<folder>/000012/`` holds ``manifest.json``, ``moment`` (see ``_image.py``), and a folder for each stage that saves more. It is
written as ``000012.part`` and renamed once all of it is on the disk: the rename is the commit. What is left of one that was cut
short is swept when the folder is opened to be written. ``_commit.py`` reads them.

Who reads a commit holds a shared lock on its manifest, and retention passes over what is locked. ``lock`` beside them is held
by the one process that writes.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec

from .._codec import PLAIN, Hooks
from ._commit import FORMAT, MANIFEST, MOMENT, Commit, Manifest, checksum, complete, newest
from ._points import reach

_PART, _OLD, _LOCK = ".part", ".old", "lock"
Best = Callable[[Mapping[str, Any]], float | None]
"""How good what is in a commit is, higher is better, from what the program said of itself; ``None`` where nobody knows."""

_Identity = tuple[int, int, int]
"""Device and inode of a file, and when it was changed: those of one that lies in two commits by a link are equal."""


@dataclass(frozen=True)
class Draft:
    """A commit on its way: the folder it is written in, and its number."""

    number: int
    folder: Path


class Commits:
    """The commits of one run. A context manager for the process that writes them; to read, ``complete`` and ``newest`` do.

    Args:
        folder: where they lie; made if absent.
        every: steps from one to the next. The last step of a graph is always followed by one.
        keep: number of latest commits kept; ``None`` keeps all.
        best: tells how good a commit is: the best one is kept beside the latest; ``None`` where none is better.
        hooks: for values that msgpack has no type for, such as arrays.
    """

    def __init__(
        self, folder: Path, *, every: int = 1, keep: int | None = 2, best: Best | None = None, hooks: Hooks = PLAIN
    ) -> None:
        for name, value in (("every", every), ("keep", keep)):
            if value is not None and value < 1:
                raise ValueError(f"expected {name} of at least 1, got {value}, in Commits({folder}); raise it")
        self.folder, self.every, self.keep, self.hooks = folder.absolute(), every, keep, hooks
        self._best = best
        self._lock: BinaryIO | None = None
        self._next = 1
        self._checksums: dict[_Identity, int] = {}

    def __enter__(self) -> Self:
        """Lock the folder and sweep it.

        Raises:
            BlockingIOError: another process writes there.
            OSError: it is no folder that can be written.
        """
        try:
            self._hold()
        except BlockingIOError:
            raise
        except OSError as error:
            got = f"expected a folder that can be written, got '{error.strerror}'; name another, or free this one"
            raise OSError(error.errno, got, str(self.folder)) from error
        numbers = [0]
        for path in self.folder.glob("*"):
            if path.suffix in (_PART, _OLD):
                shutil.rmtree(path, ignore_errors=True)
            if path.stem.isdecimal():
                numbers.append(int(path.stem))  # also of what is damaged or could not be swept: no number comes twice
        self._next = max(numbers) + 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def begin(self) -> Draft:
        """Begin the next commit. A folder that was removed meanwhile is made again.

        Raises:
            BlockingIOError: it was removed, and now another process writes there.
            OSError: its folder cannot be made.
        """
        draft = Draft(self._next, self.folder / f"{self._next:06}{_PART}")
        self._next += 1
        self._hold()
        draft.folder.mkdir()
        reach("commit.begin")
        return draft

    def write(
        self,
        draft: Draft,
        about: Mapping[str, Any],
        graph: Mapping[str, Any] | None = None,
        blocks: Iterable[bytes] = (),
        writes: Sequence[Callable[[], None]] = (),
    ) -> Commit:
        """Write all that is missing of a commit, and make it count; then remove what is older than is kept. On any thread.

        Args:
            draft: from ``begin``.
            about: what the program says of itself, plain values.
            graph: as data.
            blocks: the moment, piece by piece.
            writes: what ``Saves.save`` gave.

        Raises:
            OSError: it could not be written; it is given up, and those before it are as they were.
        """
        try:
            commit = self._put_in_place(draft, self._manifest(draft, about, graph, blocks, writes))
        except BaseException:
            self.discard(draft)
            raise
        self._retain()
        return commit

    def link(self, draft: Draft, before: Commit, name: str) -> None:
        """Let what an earlier commit saved under a name be in this one too, by links where there can be some."""
        link_tree(before.folder / name, draft.folder / name)

    def discard(self, draft: Draft) -> None:
        """Give up a commit on its way."""
        shutil.rmtree(draft.folder, ignore_errors=True)

    def latest(self) -> Commit | None:
        """The newest commit to go on from, see ``newest``.

        Raises:
            CannotResume: there are some, and none of them is whole.
        """
        return newest(self.folder)

    def _hold(self) -> None:
        """Hold the lock: that of the folder as it is now, which may be another than was there when it was locked first."""
        path = self.folder / _LOCK
        with contextlib.suppress(FileNotFoundError):
            if self._lock is not None and os.path.samestat(os.fstat(self._lock.fileno()), path.stat()):
                return
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            got = "expected nobody else to write, got another process that does; wait for its end, or name another folder"
            raise BlockingIOError(errno.EAGAIN, got, str(self.folder)) from error
        except OSError:
            lock.close()
            raise
        if self._lock is not None:
            self._lock.close()
        self._lock = lock

    def _manifest(
        self,
        draft: Draft,
        about: Mapping[str, Any],
        graph: Mapping[str, Any] | None,
        blocks: Iterable[bytes],
        writes: Sequence[Callable[[], None]],
    ) -> Manifest:
        """Write the moment and what is saved beside it; gives what the commit then says of itself."""
        size, found = 0, hashlib.blake2b(digest_size=16)
        if graph is not None:
            with (draft.folder / MOMENT).open("wb") as file:
                for block in blocks:
                    size += file.write(block)
                    found.update(block)
            reach("commit.moment")
        for write in writes:
            write()
        reach("commit.saved")
        saved = sorted(path for path in draft.folder.iterdir() if path.is_dir())
        files = [path for folder in saved for path in sorted(folder.rglob("*")) if path.is_file()]
        return Manifest(
            format=FORMAT,
            number=draft.number,
            time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            about=dict(about),
            graph=None if graph is None else dict(graph),
            moment_bytes=size,
            moment_digest="" if graph is None else found.hexdigest(),
            saved=tuple(path.name for path in saved),
            files=self._measured(draft.folder, files),
        )

    def _measured(self, folder: Path, files: Sequence[Path]) -> dict[str, tuple[int, int]]:
        """Bytes and checksums of files. One that lies in the commit before too, by a link, is not read again."""
        before, self._checksums = self._checksums, {}
        measured: dict[str, tuple[int, int]] = {}
        for path in files:
            status = path.stat()
            identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
            known = before.get(identity)
            self._checksums[identity] = checksum(path) if known is None else known
            measured[path.relative_to(folder).as_posix()] = (status.st_size, self._checksums[identity])
        return measured

    def _put_in_place(self, draft: Draft, manifest: Manifest) -> Commit:
        (draft.folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        _sync(draft.folder)
        reach("commit.manifest")
        folder = self.folder / f"{draft.number:06}"
        draft.folder.rename(folder)
        _sync_folder(self.folder)
        reach("commit.renamed")
        return Commit(folder, manifest)

    def _retain(self) -> None:
        if self.keep is None:
            return
        commits = complete(self.folder)
        kept = {commit.number for commit in commits[-self.keep :]}
        if self._best is not None:
            scores = {commit.number: score for commit in commits if (score := self._best(commit.manifest.about)) is not None}
            kept |= {max(scores, key=lambda number: (scores[number], number))} if scores else set()
        for commit in commits:
            if commit.number not in kept:
                _remove(commit)
        reach("commit.retained")


def link_tree(source: Path, target: Path) -> None:
    """Let the files of a folder lie in another too, by links where there can be some. Nobody may change them in place.

    Raises:
        OSError: they cannot, or the other is there already.
    """
    shutil.copytree(source, target, copy_function=_link)


def _remove(commit: Commit) -> None:
    """Remove a commit that nobody reads. What cannot be removed now is next time."""
    with contextlib.suppress(OSError), (commit.folder / MANIFEST).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        away = commit.folder.with_name(f"{commit.folder.name}{_OLD}")
        commit.folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


def _sync(folder: Path) -> None:
    """Have all of a folder on the disk, so that no power cut leaves a commit with a hole in it."""
    for where, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(where, name), "rb") as file:
                os.fsync(file.fileno())
        _sync_folder(Path(where))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

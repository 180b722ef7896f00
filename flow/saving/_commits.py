"""The commits of a run, each a folder that is there as a whole or not at all. Knows files, and neither graphs nor stages.

``<folder>/000012/`` holds ``manifest.json``, ``moment`` (see ``_image.py``), and a folder for each stage that saves more. It is
written as ``000012.part`` and renamed once all of it is on the disk: the rename is the commit. What is left of one that was cut
short is swept when the folder is opened to be written.

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
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from .._codec import PLAIN, Hooks
from .._errors import CannotResume
from ._points import reach

FORMAT = 1
_MANIFEST, _MOMENT, _PART, _OLD, _LOCK = "manifest.json", "moment", ".part", ".old", "lock"


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
        content = (self.folder / _MOMENT).read_bytes() if self.manifest.graph is not None else b""
        if not content or _digest(content) != self.manifest.moment_digest:
            got = "other bytes" if content else "none"
            raise CannotResume(f"{self.folder}: expected the moment it was written with, got {got}; resume from another commit")
        return content

    def saved(self, name: str) -> Path | None:
        """The folder of what saved more than its state; ``None`` where it did not."""
        return self.folder / name if name in self.manifest.saved else None

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Keep it from being removed meanwhile.

        Raises:
            FileNotFoundError: it was removed before.
        """
        with (self.folder / _MANIFEST).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if not (self.folder / _MANIFEST).exists():
                raise FileNotFoundError(f"{self.folder}: expected a commit, got one that was just removed; take the latest")
            yield


@dataclass(frozen=True)
class Draft:
    """A commit on its way: the folder it is written in, and its number."""

    number: int
    folder: Path


class Commits:
    """The commits of one run. A context manager for the process that writes them; to read, ``complete`` alone is enough.

    Args:
        folder: where they lie; made if absent.
        every: steps from one to the next. The last step of a graph is always followed by one.
        keep: number of latest commits kept; ``None`` keeps all.
        hooks: for values that msgpack has no type for, such as arrays.

    Attributes:
        on_thread: whether they are written on a thread.
    """

    on_thread = True

    def __init__(self, folder: Path, *, every: int = 1, keep: int | None = 2, hooks: Hooks = PLAIN) -> None:
        for name, value in (("every", every), ("keep", keep)):
            if value is not None and value < 1:
                raise ValueError(f"expected {name} of at least 1, got {value}, in Commits({folder}); raise it")
        self.folder, self.every, self.keep, self.hooks = folder.absolute(), every, keep, hooks
        self._stack = contextlib.ExitStack()
        self._next = 1

    def __enter__(self) -> Self:
        """Lock the folder and sweep it.

        Raises:
            BlockingIOError: another process writes there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = self._stack.enter_context((self.folder / _LOCK).open("ab"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._stack.close()
            raise BlockingIOError(
                errno.EAGAIN,
                f"expected nobody else to write, got another process that does, in {self.folder}; wait for its end",
            ) from error
        for left in (*self.folder.glob(f"*{_PART}"), *self.folder.glob(f"*{_OLD}")):
            shutil.rmtree(left, ignore_errors=True)
        self._next = 1 + max((commit.number for commit in complete(self.folder)), default=0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def begin(self) -> Draft:
        """Begin the next commit.

        Raises:
            OSError: its folder cannot be made.
        """
        draft = Draft(self._next, self.folder / f"{self._next:06}{_PART}")
        draft.folder.mkdir(parents=True)
        self._next += 1
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
            OSError: it could not be written; those before it are as they were.
        """
        size, digest = 0, hashlib.blake2b(digest_size=16)
        if graph is not None:
            with (draft.folder / _MOMENT).open("wb") as file:
                for block in blocks:
                    size += file.write(block)
                    digest.update(block)
            reach("commit.moment")
        for write in writes:
            write()
        reach("commit.saved")
        manifest = Manifest(
            format=FORMAT,
            number=draft.number,
            time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            about=dict(about),
            graph=None if graph is None else dict(graph),
            moment_bytes=size,
            moment_digest="" if graph is None else digest.hexdigest(),
            saved=tuple(sorted(path.name for path in draft.folder.iterdir() if path.is_dir())),
        )
        (draft.folder / _MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        _sync(draft.folder)
        reach("commit.manifest")
        folder = self.folder / f"{draft.number:06}"
        draft.folder.rename(folder)
        _sync_folder(self.folder)
        reach("commit.renamed")
        self._retain()
        return Commit(folder, manifest)

    def link(self, draft: Draft, before: Commit, name: str) -> None:
        """Let what an earlier commit saved under a name be in this one too, by links where there can be some."""
        link_tree(before.folder / name, draft.folder / name)

    def discard(self, draft: Draft) -> None:
        """Give up a commit on its way."""
        shutil.rmtree(draft.folder, ignore_errors=True)

    def latest(self) -> Commit | None:
        """The latest complete commit, ``None`` where there is none."""
        return max(complete(self.folder), key=lambda commit: commit.number, default=None)

    def _retain(self) -> None:
        if self.keep is None:
            return
        for commit in complete(self.folder)[: -self.keep]:
            _remove(commit)
        reach("commit.retained")


def complete(folder: Path) -> list[Commit]:
    """The complete commits in a folder, oldest first.

    Raises:
        CannotResume: one is of another version of this format.
    """
    found: list[Commit] = []
    for path in sorted(folder.glob("*")):
        if path.name.isdecimal() and (path / _MANIFEST).exists():
            found.append(Commit(path, _manifest(path)))
    return sorted(found, key=lambda commit: commit.number)


def link_tree(source: Path, target: Path) -> None:
    """Let the files of a folder lie in another too, by links where there can be some. Nobody may change them in place.

    Raises:
        OSError: they cannot, or the other is there already.
    """
    shutil.copytree(source, target, copy_function=_link)


def _manifest(path: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode((path / _MANIFEST).read_bytes(), type=Manifest)
        if manifest.format != FORMAT:
            raise msgspec.ValidationError(f"format {manifest.format}")
    except msgspec.DecodeError as error:
        raise CannotResume(
            f"{path / _MANIFEST}: expected a manifest of format {FORMAT}, got another ({error}); "
            "resume with the version that wrote it, or remove this folder to use the commit before it"
        ) from error
    return manifest


def _remove(commit: Commit) -> None:
    """Remove a commit that nobody reads. What cannot be removed now is next time."""
    with contextlib.suppress(OSError), (commit.folder / _MANIFEST).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        away = commit.folder.with_name(f"{commit.folder.name}{_OLD}")
        commit.folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


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

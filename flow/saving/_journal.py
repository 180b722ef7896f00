"""What was finished since the latest commit, so that it is not done again after a kill: a folder of files that are appended to.

``<folder>/000012.log`` holds what came after the moment of commit 12, and maybe of some after it that never came to be; 000000
what came before the first. A record is written with one ``write()`` before anything else sees what it tells of, which survives
the death of the process. It is not synchronised with the disk: what a power cut may take is done again, and to wait for the
disk at each episode would cost more than that ever does.

A record is a fact by itself. So a hole, left by a disk that refused some, costs work and nothing else; but an attempt whose
beginning was not noted has its number given out twice.

Not here: which facts may be used (``flow/_recalling.py``), and when a commit is made (``flow/_keeping.py``).
"""

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ._points import reach
from ._records import MAGIC, Begun, Cut, Forgiven, Key, Made, Opened, Placed, Record, frame, read_file, unframe

_LOG = logging.getLogger("headrace")
_MOST_CUTS = 8
"""Commits for which a result that nobody has delivered yet is remembered: it may never be, and must keep no file for ever."""
_FAILURES = ("failed", "dropped", "retried")


class _Place(NamedTuple):
    """Where a record lies."""

    file: int
    start: int
    end: int


class _Attempts(NamedTuple):
    """The newest file that tells of an attempt, and the first number that none had."""

    file: int
    next: int


class Journal:
    """The journal of one program, whose graphs share it. A context manager for the process that writes it.

    Args:
        folder: where its files lie; made if absent.
        after: number of the commit that the program goes on from; 0 where it begins.
        record: keep every file, and note the steps of sinks too, for a replay of the whole run.
        settings: what the program runs with besides the graph, such as a digest of its settings. What was made with versions
            that came after the commit is used only where it is the same.
        on_failure: told, on the loop, that the disk refused a record; ``None`` leaves it at a warning in the log.

    Attributes:
        told: what was found wrong in the files that were there, a line each.
        failure: why nothing is written any more, until the next commit; ``None`` where it is.
        number: of the latest commit whose moment was taken.
        trails: by graph and cell, what each version was made of, as far as it is known.
        parts: by graph and cell, and birth, what each group on its way is made of so far.
    """

    def __init__(
        self,
        folder: Path,
        *,
        after: int = 0,
        record: bool = False,
        settings: str = "",
        on_failure: Callable[[OSError], None] | None = None,
    ) -> None:
        self.folder, self.record, self.settings = folder.absolute(), record, settings
        self.number, self._file = after, after
        self.told: list[str] = []
        self.failure: OSError | None = None
        self.trails: dict[str, dict[int, int]] = {}
        self.parts: dict[str, dict[int, int]] = {}
        self._on_failure = on_failure
        self._begun: dict[Key, _Attempts] = {}  # those of earlier processes
        self._found: dict[Key, _Place] = {}  # what they came to
        self._failed: set[Key] = set()  # of these, what a graph that ended in an error is forgiven
        self._pending: dict[Key, _Place] = {}  # of this one, not delivered yet
        self._cuts: deque[int] = deque(maxlen=_MOST_CUTS)
        self._since: dict[int, int] = {}  # by commit, the oldest file that one who goes on from it has to read
        self._handle: int | None = None
        self._end = 0

    def __enter__(self) -> Self:
        """Read what is there, cut off a torn end, and open it to go on. A disk that refuses is told of, see ``failure``."""
        try:
            self._read()
        except OSError as error:
            self._fail(error)
        for line in self.told:
            _LOG.warning("%s", line)
        self._open()
        self.append(Opened(self.number))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    # --- writing: on the loop ---

    def append(self, record: Record) -> _Place | None:
        """Append a record with one write. Where the disk refuses, that is told, and no more is written up to the next commit.

        Returns:
            Where it lies; ``None`` where it was not written.
        """
        if self._handle is None:
            return None
        content = frame(record)
        reach("journal.append")
        try:
            if os.write(self._handle, content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path(self._file)))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._end)  # what was written of it would hide what follows
            self._fail(error)
            return None
        reach("journal.appended")
        place = _Place(self._file, self._end, self._end + len(content))
        self._end = place.end
        return place

    def keep(self, made: Made) -> None:
        """Append what an attempt came to, and find it again until it is delivered."""
        place = self.append(made)
        if place is not None and made.outcome != "retried":
            self._pending[made.key] = place

    def delivered(self, key: Key) -> None:
        """What came of it is on its way: from here on the commits hold it."""
        self._pending.pop(key, None)
        self._found.pop(key, None)

    def cut(self, number: int) -> None:
        """The moment of a commit is taken now: what comes after goes into its file. Also where nothing could be written so far.

        Args:
            number: of the commit.
        """
        self._forget_undelivered()
        self._cuts.append(self._file)
        self.number = number
        if number > self._file or self._handle is None:
            self._close()
            self._file = max(number, self._file)
            self._open()
        waiting = chain(self._begun.values(), self._found.values(), self._pending.values())
        since = self._since[number] = min([self._file, *(place.file for place in waiting)])
        self.append(Cut(number, since, self.trails, self.parts))
        reach("journal.cut")

    def forget(self, oldest: int) -> None:
        """Remove the files that nobody needs any more who goes on from a commit that is kept. On any thread.

        What is older than that and not delivered yet stays: it may be needed after a second kill.

        Args:
            oldest: number of the oldest commit that is kept.
        """
        if self.record:
            return
        needed = self._since.get(oldest, 0)  # of a commit of an earlier process it may not be known: then all stay for now
        for commit in [commit for commit in dict(self._since) if commit < oldest]:  # the loop adds to it meanwhile
            del self._since[commit]
        for number in _numbers(self.folder):
            if number < needed:
                with contextlib.suppress(OSError):  # what cannot be removed now is next time
                    self._path(number).unlink()

    # --- what is known ---

    def find(self, key: Key) -> Made | None:
        """What came of an attempt that is not delivered yet; ``None`` where nothing did, or it cannot be read any more."""
        place = self._pending.get(key) or self._found.get(key)
        if place is None:
            return None
        try:
            with self._path(place.file).open("rb") as file:
                file.seek(place.start)
                record = unframe(file.read(place.end - place.start))
        except (OSError, ValueError) as error:
            _LOG.warning("%s cannot be read any more and is made again: %s", key, error)
            self.delivered(key)
            return None
        return record if isinstance(record, Made) else None

    def next_attempt(self, key: Key) -> int:
        """The first number that no attempt of an earlier process had. Asked once, as the attempt then begins."""
        known = self._begun.pop(key, None)
        return 0 if known is None else known.next

    def _read(self) -> None:
        numbers = _numbers(self.folder)
        cut = self._latest_cut([number for number in numbers if number >= self.number])
        since = self.number if cut is None else cut.since
        if cut is not None:
            self.trails, self.parts = cut.trails, cut.parts
        for number in numbers:
            if number >= since:
                for placed in read_file(self._path(number), self.told):
                    self._learn(number, placed)
        self._file = max([self.number, *numbers])

    def _latest_cut(self, numbers: Iterable[int]) -> Cut | None:
        """Where the moment of the commit was taken that the program goes on from. A number may have been given twice."""
        cuts = (placed.record for number in numbers for placed in read_file(self._path(number), []))
        found = None
        for record in cuts:
            if isinstance(record, Cut) and record.number == self.number:
                found = record
        return found

    def _learn(self, number: int, placed: Placed) -> None:
        record, place = placed.record, _Place(number, placed.start, placed.end)
        if isinstance(record, Begun):
            known = self._begun.get(record.key)
            self._begun[record.key] = _Attempts(number, max(record.attempt + 1, 0 if known is None else known.next))
        elif isinstance(record, Made):
            self._found[record.key] = place
            (self._failed.add if record.outcome in _FAILURES else self._failed.discard)(record.key)
        elif isinstance(record, Cut):
            self._since[record.number] = record.since
        elif isinstance(record, Forgiven):
            for key in [key for key in self._failed if key[0] == record.graph]:
                self._failed.discard(key)
                self._found.pop(key, None)

    def _forget_undelivered(self) -> None:
        """What was made before all moments that this process remembers is not waited for any more.

        Those of earlier processes do not count: their commits may never have come to be.
        """
        if len(self._cuts) == _MOST_CUTS:
            for places in (self._begun, self._found, self._pending):
                for key in [key for key, place in places.items() if place.file < self._cuts[0]]:
                    del places[key]

    # --- its files ---

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06}.log"

    def _open(self) -> None:
        """Open the file to go on with, behind the last good record in it."""
        path = self._path(self._file)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            with path.open("rb") as file:
                self._end = len(MAGIC) if file.read(len(MAGIC)) == MAGIC else 0
            for placed in read_file(path, []):
                self._end = placed.end
            os.ftruncate(self._handle, self._end)
            if not self._end:
                self._end = os.write(self._handle, MAGIC)
        except OSError as error:
            self._fail(error)
        else:
            self.failure = None

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _fail(self, error: OSError) -> None:
        """Tell that nothing is written for now; the run goes on."""
        self._close()
        self.failure = error
        _LOG.warning("the journal cannot be written, and the run goes on without it up to the next commit: %s", error)
        if self._on_failure is not None:
            self._on_failure(error)


def read_journal(folder: Path) -> Iterator[Record]:
    """Read all records of a journal, in the order in which they were written.

    What follows a torn or damaged record in its file is left out.

    Args:
        folder: where its files lie.

    Raises:
        OSError: a file cannot be read.
    """
    for number in _numbers(folder):
        for placed in read_file(folder / f"{number:06}.log", []):
            yield placed.record


def _numbers(folder: Path) -> list[int]:
    """Numbers of the files that are there, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdecimal())

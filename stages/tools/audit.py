"""The audit log of a run: what becomes of each tool call, written by a thread so that no disk holds up the loop.

A row says who called what, under which credentials, for how long and with what outcome, never a secret. A call has one when it
starts and one when it has ended, one that is refused the latter only: so what was under way when a run was killed is known.
Rows are on disk a moment later: a killed run may lack its very last ones, and half a row is cut off when it is resumed.
"""

import datetime
import io
import os
import queue
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

AUDIT_FILE = "audit.jsonl"
"""Its name in the folder of a run."""
RUN_FOLDER, RUN_PHASE, RUN_ATTEMPT = "HEADRACE_RUN_FOLDER", "HEADRACE_RUN_PHASE", "HEADRACE_RUN_ATTEMPT"
"""Variables by which processes that a run starts know it."""
MAX_WAITING = 10_000
"""Rows that may wait for the disk. A call waits with its row beyond that: none is lost."""

_BLOCK_BYTES = 1 << 16


class AuditLog:
    """Writes rows to a file, made when the first one comes. A context manager: leaving writes all that wait.

    Args:
        path: of the file; rows are added to one that is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is not None:
            self._rows.put(None)
            self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def write(self, row: Mapping[str, Any], **more: Any) -> None:
        """Add a row of values that JSON can hold, with the time before it and more after that.

        Raises:
            OSError: an earlier row could not be written. Calls that leave no row are not to be made.
        """
        if self._error is not None:
            raise OSError(f"the audit log cannot be written: {self._error}") from self._error
        if self._thread is None:
            # Not a daemon's end but ours: leaving joins it. A daemon all the same, so that a crash is not held up.
            self._thread = threading.Thread(target=self._write_all, name="audit log", daemon=True)
            self._thread.start()
        self._rows.put(_line({**more, **row}))

    def _write_all(self) -> None:
        try:
            with self._path.open("ab", buffering=0) as file:
                _cut_half_row(self._path, file.fileno())
                while (row := self._rows.get()) is not None:
                    _write_whole(file, row)
        except OSError as error:
            self._error = error
            while self._rows.get() is not None:
                pass


def inherited_audit(row: Mapping[str, Any]) -> None:
    """Write a row in a process that a run has started, at once; does nothing where no run did."""
    run = os.environ.get(RUN_FOLDER)
    if run is not None:
        # One write to the end of a file: rows of several processes do not mix.
        with (Path(run) / AUDIT_FILE).open("ab", buffering=0) as file:
            _write_whole(file, _line({**_of_run(), **row}))


def _of_run() -> dict[str, Any]:
    return {"run_attempt": int(os.environ.get(RUN_ATTEMPT, "0")), "phase": os.environ.get(RUN_PHASE)}


def _write_whole(file: io.FileIO, row: bytes) -> None:
    """In one write, but where the disk takes less at once."""
    while row:
        row = row[file.write(row) :]


def _cut_half_row(path: Path, log: int) -> None:
    """Cut off a row that a kill has left unfinished: another one behind it would make a line that nobody can read."""
    if not stat.S_ISREG(os.fstat(log).st_mode):
        return
    with path.open("rb") as file:
        end = whole = file.seek(0, os.SEEK_END)
        while whole > 0:
            start = max(0, whole - _BLOCK_BYTES)
            file.seek(start)
            found = file.read(whole - start).rfind(b"\n")
            if found >= 0:
                whole = start + found + 1
                break
            whole = start
    if whole < end:
        os.ftruncate(log, whole)


def _line(row: Mapping[str, Any]) -> bytes:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return msgspec.json.encode({"time": now, **row}) + b"\n"


def used_credentials(path: Path) -> set[str]:
    """Names of the credentials that the calls of an audit log have used; none where there is no log."""
    if not path.exists():
        return set()
    with path.open("rb") as file:
        return {name for line in file for name in _named(line)}


def _named(line: bytes) -> list[str]:
    try:
        return _CREDENTIALS.decode(line).credentials
    except msgspec.DecodeError:  # cut by a kill, or by a disk that was full
        return []


class _Used(msgspec.Struct):
    credentials: list[str] = []


_CREDENTIALS = msgspec.json.Decoder(_Used)

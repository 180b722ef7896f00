"""What a run left in its folder, read for its report: settings, rows, starts, errors and samples. Reads; knows no page.

The trace is not read here: it is long, and said of in ``verdict.py``.

A file that is missing or torn, as after a kill or while the run goes on, leaves out what it would have said. Numbers that are
not finite stand in the files as their names, and are none here: ``number`` gives ``None`` for them.
"""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from graphs.runs.errors import ERRORS, error_file, last_line
from graphs.runs.folder import ATTEMPTS, METRICS, SAMPLES, SUMMARY, TRANSCRIPTS
from graphs.runs.metrics import ALERTS, HEALTH
from stages.records import Status

Row = Mapping[str, Any]

CONFIG = "config.json"
READ = (CONFIG, SUMMARY, METRICS, ATTEMPTS, TRANSCRIPTS, SAMPLES)
"""Files that a report is made of."""
MOST_KINDS = 30
"""Kinds of errors that are told apart; the others are counted as one."""
_MOST_TRACE = 8_000
"""Characters of a traceback that are shown: the last ones say what it was."""
_TO_SHOW = 4
"""Transcripts kept from the beginning, and from the end."""
FAILED = {status.value for status in Status if status.failed}


class Transcript(msgspec.Struct, frozen=True):
    """A row of ``episodes.jsonl``, as far as a report reads it."""

    status: str
    phase: str = ""
    task: str = ""
    birth: int = 0
    member: int = 0
    retry: int = 0
    error: str | None = None
    reward: float | str | None = None
    parts: dict[str, float | str] = {}
    answer: str | None = None
    version: int = -1
    num_sampled: int = 0
    messages: list[dict[str, Any]] = []


@dataclass
class ErrorKind:
    """Errors that are alike but for their numbers.

    Attributes:
        where: the stage, or how the episodes ended.
        text: the first one, in a line.
        count: how many; ``None`` where nobody counted.
        traceback: of the first one; empty where there is none.
        transcript: the first episode that ended so; ``None`` where none was written.
    """

    where: str
    text: str
    count: int | None = None
    traceback: str = ""
    transcript: Transcript | None = None


@dataclass(frozen=True)
class RunRecord:
    """What a run left.

    Attributes:
        folder: of the run.
        config: its ``config.json``; empty where it cannot be read.
        summary: its ``summary.json``; empty before its end.
        attempts: a row for each start.
        rows: of ``metrics.jsonl``, by phase and stage, in their order.
        errors: of stages, then of episodes, the most frequent first.
        transcripts: a few episodes as text.
        samples: episodes token by token.
    """

    folder: Path
    config: Row = field(default_factory=dict[str, Any])
    summary: Row = field(default_factory=dict[str, Any])
    attempts: Sequence[Row] = ()
    rows: Mapping[tuple[str, str], Sequence[Row]] = field(default_factory=dict[tuple[str, str], Sequence[Row]])
    errors: Sequence[ErrorKind] = ()
    transcripts: Sequence[Transcript] = ()
    samples: Sequence[Row] = ()

    @property
    def ended(self) -> bool:
        """Whether the newest start of the run has written how it ended."""
        return bool(self.summary) and self.summary.get("attempts", len(self.attempts)) >= len(self.attempts)

    @property
    def trainings(self) -> dict[str, Sequence[Row]]:
        """Rows of the steps of each phase that trains, in order."""
        found: dict[str, Sequence[Row]] = {}
        for (phase, _), rows in self.rows.items():
            steps = [row for row in rows if isinstance(row.get("step"), int)]
            if steps and ("loss" in steps[0] or phase not in found):
                found[phase] = steps
        return found

    @property
    def main(self) -> str | None:
        """The training that the report speaks of: the last one; ``None`` where nothing was trained yet."""
        return next(reversed(self.trainings), None)

    @property
    def health(self) -> Sequence[Row]:
        """Rows of how the run did, every few seconds."""
        return [row for (_, stage), rows in self.rows.items() if stage == HEALTH for row in rows if "seconds" in row]

    @property
    def alerts(self) -> Sequence[Row]:
        """Rows of alerts, raised and cleared."""
        return [row for (_, stage), rows in self.rows.items() if stage == ALERTS for row in rows if "alert" in row]

    @property
    def heldout(self) -> Sequence[Row]:
        """Rows of evaluations during training."""
        return [row for rows in self.rows.values() for row in rows if "version" in row and "heldout" in row]


def read_record(folder: Path) -> RunRecord:
    """Read the folder of a run."""
    summary = read_object(folder / SUMMARY)
    rows: dict[tuple[str, str], list[Row]] = {}
    for row in read_rows(folder / METRICS):
        rows.setdefault((str(row.get("phase", "")), str(row.get("stage", ""))), []).append(row)
    kinds, transcripts = _read_episodes(folder / TRANSCRIPTS)
    return RunRecord(
        folder=folder,
        config=read_object(folder / CONFIG),
        summary=summary,
        attempts=list(read_rows(folder / ATTEMPTS)),
        rows=rows,
        errors=[*_of_stages(folder / ERRORS, summary), *sorted(kinds, key=lambda kind: -(kind.count or 0))],
        transcripts=transcripts,
        samples=list(read_rows(folder / SAMPLES)),
    )


def stamp(folder: Path) -> str:
    """Changes whenever a file that a report is made of does."""
    files = [folder / name for name in READ]
    return "-".join(f"{it.st_size:x}.{it.st_mtime_ns:x}" for file in files if file.exists() for it in [file.stat()])


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}


def read_rows(file: Path) -> Iterator[Row]:
    """JSON objects, one a line; a line that cannot be read is passed over."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    yield from _read_lines(file, decode)


def number(value: Any) -> float | None:
    """A finite number of a row; ``None`` for whatever else stands there."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _read_lines(file: Path, decode: Any) -> Iterator[Any]:
    if not file.exists():
        return
    with file.open("rb") as lines:
        for line in lines:
            try:
                yield decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue


def _of_stages(folder: Path, summary: Row) -> list[ErrorKind]:
    """Of each file of a traceback; the summary, once it is there, knows whose it is."""
    stages = summary.get("stages") or {}
    kinds = [(name, kind) for name, node in stages.items() for kind in node.get("failures") or ()]
    whose = {error_file(folder, name, kind): name for name, kind in kinds}
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    traces = {file: file.read_text(errors="replace").strip()[-_MOST_TRACE:] for file in files}
    return [ErrorKind(whose.get(file, file.stem), last_line(trace), traceback=trace) for file, trace in traces.items()]


def _read_episodes(file: Path) -> tuple[list[ErrorKind], list[Transcript]]:
    """Errors of episodes by kind, and transcripts to show: of each end the first, and the last ones."""
    kinds: dict[tuple[str, str], ErrorKind] = {}
    firsts: dict[str, Transcript] = {}
    begin: list[Transcript] = []
    latest: deque[Transcript] = deque(maxlen=_TO_SHOW)
    for row in _read_lines(file, msgspec.json.Decoder(Transcript).decode):
        if row.status in FAILED:
            _count(kinds, row)
        elif row.status not in firsts:
            firsts[row.status] = row
        if len(begin) < _TO_SHOW:
            begin.append(row)
        else:
            latest.append(row)
    shown = [*begin, *(row for row in firsts.values() if row not in begin and row not in latest), *latest]
    return list(kinds.values()), shown


def _count(kinds: dict[tuple[str, str], ErrorKind], row: Transcript) -> None:
    text = row.error or row.status
    key = row.status, re.sub(r"\d+", "#", text)[:200]
    if key not in kinds and len(kinds) >= MOST_KINDS:
        key = "", ""
    kind = kinds.setdefault(key, ErrorKind(row.status, text, 0, transcript=row) if key[1] else ErrorKind("", "others", 0))
    kind.count = (kind.count or 0) + 1

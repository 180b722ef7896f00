"""The folder of a run: metrics, transcripts, trace, commits and the summary. Watches the graphs and writes what they tell.

``metrics.jsonl``: a row for each report of a stage; that of a step says what became of the tasks of each source too.
Rows of health and of alerts.
``episodes.jsonl``: transcripts, up to a bound.
``samples.jsonl``: a few whole episodes of each step, token by token, up to a bound.
``attempts.jsonl``: a row for each time the run was started. Rows of the other files carry the number of theirs, ``attempt``.
``superseded.jsonl``: rows that came after the commit which a later attempt went on from.
``summary.json``: once, at the end, whatever the end was. Written elsewhere: ``checkpoints``, ``audit.jsonl``, rows of each tool
call, and ``revoked``, an empty file for each credential that was taken back.
"""

import datetime
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec
import numpy as np

from graphs.runs.json_rows import encode
from graphs.runs.lock import locked
from graphs.runs.samples import SampleRows
from graphs.runs.superseded import cut_back
from stages.outcomes import Outcomes, OutcomesState
from stages.records import Episode, Group
from stages.train.samples import Samples

HELDOUT = "heldout"
"""What the names of nodes begin with whose episodes are not those of the phase: nothing of them is trained."""
Listener = Callable[[Mapping[str, Any]], None]
ATTEMPTS, METRICS, TRANSCRIPTS, SAMPLES = "attempts.jsonl", "metrics.jsonl", "episodes.jsonl", "samples.jsonl"
SUMMARY = "summary.json"
_OF_ROWS = (METRICS, TRANSCRIPTS, SAMPLES)
"""Files of rows, in the order of ``Sizes``."""


class Steps(msgspec.Struct):
    """What the rows of the steps of a phase amount to.

    Attributes:
        count: steps.
        trained_tokens: of all.
        lag_sum: of the mean lags of those that have one.
        num_lags: how many have one.
        lag_max: of all; ``None`` where none has one.
    """

    count: int = 0
    trained_tokens: int = 0
    lag_sum: float = 0.0
    num_lags: int = 0
    lag_max: int | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row."""
        self.count += 1
        self.trained_tokens += row.get("trained_tokens") or 0
        if row.get("lag_mean") is not None:
            self.lag_sum, self.num_lags = self.lag_sum + row["lag_mean"], self.num_lags + 1
        if row.get("lag_max") is not None:
            self.lag_max = max(self.lag_max or 0, row["lag_max"])

    @property
    def lag_mean(self) -> float | None:
        """Mean of the means; ``None`` where no step has one."""
        return self.lag_sum / self.num_lags if self.num_lags else None


class Sizes(msgspec.Struct, frozen=True):
    """Bytes of the files of rows at some moment."""

    metrics: int
    transcripts: int
    samples: int = 0


class FolderState(msgspec.Struct, frozen=True):
    """What a commit keeps of a run's folder. The row of a step that is not complete is no part of it: it comes again.

    Attributes:
        sizes: of the files; what lies behind is of work that is done again.
        steps: of the phase under way.
        episodes: that ended, by status.
        num_sampled: tokens.
        outcomes: counts of tasks.
        told: failed episodes lately, whose transcripts are written.
    """

    sizes: Sizes
    steps: Steps
    episodes: dict[str, int]
    num_sampled: int
    outcomes: OutcomesState
    told: tuple[tuple[int, int, int], ...]


class RunFolder:
    """Writes the files of one run. A context manager.

    Args:
        path: where; must not exist, or be empty, unless a run there is to be gone on with.
        max_transcript_bytes: ``episodes.jsonl`` and ``samples.jsonl`` grow no further than this, each.
        resume: whether a run that lies there is gone on with.

    Attributes:
        attempt: number of this start of the run, from 0; known once it is open.
        phase: that reports are of; empty before the first.

    Raises:
        FileExistsError: another run is there.
        BlockingIOError: it is to be gone on with, and another process is at it.
    """

    def __init__(self, path: Path, max_transcript_bytes: int = 20_000_000, *, resume: bool = False) -> None:
        self.path, self.attempt = path.absolute(), 0
        self._most, self._resume = max_transcript_bytes, resume
        self.phase = ""
        self._listeners: list[Listener] = []
        self.steps = Steps()
        self.episodes: Counter[str] = Counter()
        self.num_sampled = 0
        self.outcomes = Outcomes(self._write_step, beside=HELDOUT)
        self._held: tuple[str, Mapping[str, Any]] | None = None
        self._chosen: Samples | None = None
        self._sampled: SampleRows | None = None
        self._told = deque[tuple[int, int, int]](maxlen=1024)
        """Failed episodes lately, whose transcripts are written: that of one which a reward fails is not yet."""
        self._stack = ExitStack()
        above = next(parent for parent in self.path.parents if parent.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise NotADirectoryError(f"expected a folder to write to, got '{above}', above {path}; choose --options.folder")
        if resume:
            self._stack.enter_context(locked(self.path))
        elif self.path.exists() and any(self.path.iterdir()):
            raise self._taken()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if not self._resume:
                self.path.mkdir(parents=True, exist_ok=True)
                try:
                    # Of two runs that found it empty, one gets it.
                    (self.path / METRICS).open("xb").close()
                except FileExistsError as error:
                    raise self._taken() from error
                stack.enter_context(locked(self.path))
            self._metrics = stack.enter_context((self.path / METRICS).open("ab"))
            self._transcripts = stack.enter_context((self.path / TRANSCRIPTS).open("ab"))
            self._samples = stack.enter_context((self.path / SAMPLES).open("ab"))
            stack.enter_context(self._stack.pop_all())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._on_disk(), self._stack:
            self.complete()

    def finish(self) -> None:
        """Write what was held back: nothing more is told."""
        self.complete()
        self.sizes()

    def close(self) -> None:
        """Leave a run that was not gone on with after all to others."""
        self._stack.close()

    def begin_attempt(self, **facts: Any) -> int:
        """Note a start of the run, with what there is to say of it, and give its number. Rows carry it from now on."""
        file = self.path / ATTEMPTS
        lines = file.read_bytes().splitlines() if file.exists() else []
        self.attempt = len(lines)
        row = encode({"attempt": self.attempt, "time": _now(), **facts})
        with file.open("ab") as rows:
            rows.write((b"\n" if lines and not file.read_bytes().endswith(b"\n") else b"") + row + b"\n")
        return self.attempt

    def sample(self, chosen: Samples, wanted: int, decode: Callable[[np.ndarray], str]) -> None:
        """Write so many episodes of each step token by token from now on.

        Args:
            chosen: by the trainer; is offered the groups that it gets.
            wanted: of each step; 0 for none.
            decode: any ids as text.
        """
        self._sampled = SampleRows(decode, self.attempt, self._most, self._samples.tell())
        self._chosen = chosen
        chosen.attach(wanted, self._sampled.take)

    def begin(self, phase: str, total: int | None = None) -> None:
        """Reports are of this phase from now on, which has so many steps, if that is known; counts start again."""
        self.complete()
        self.phase, self.steps = phase, Steps()
        if self._sampled is not None and self._chosen is not None:
            self._sampled.begin(phase, total)
            self._chosen.begin()
        self.episodes.clear()
        self.outcomes.clear()
        self._told.clear()
        self.num_sampled = 0

    # --- commits ---

    def sizes(self) -> Sizes:
        """Bytes of the files as they are; all that was told is in them."""
        with self._on_disk():
            for file in self._files:
                file.flush()
        return Sizes(*(file.tell() for file in self._files))

    def cut_back(self, sizes: Sizes) -> int:
        """Go back to what the files held; what came after is moved aside. Gives bytes that are missing, see ``superseded``."""
        for file in self._files:
            file.flush()
        missing = sum(
            cut_back(self.path / name, size) for name, size in zip(_OF_ROWS, msgspec.structs.astuple(sizes), strict=True)
        )
        for file in self._files:
            file.seek(0, os.SEEK_END)
        if self._sampled is not None:
            self._sampled.size = self._samples.tell()
        return missing

    def state(self) -> FolderState:
        """Where the files are, and all counts of the phase."""
        return FolderState(
            self.sizes(),
            msgspec.structs.replace(self.steps),
            dict(self.episodes),
            self.num_sampled,
            self.outcomes.state(),
            tuple(self._told),
        )

    def restore(self, state: FolderState) -> None:
        """Go on from there."""
        self.cut_back(state.sizes)
        self.steps = msgspec.structs.replace(state.steps)
        self.episodes = Counter(state.episodes)
        self.num_sampled = state.num_sampled
        self.outcomes.restore(state.outcomes)
        self._told.extend(state.told)

    # --- what is told ---

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Count episodes; write transcripts of failed ones at once and of the others when they are scored."""
        for value in values:
            if isinstance(value, Episode):
                if not node.startswith(HELDOUT):
                    self._count(value)
                if value.status.failed:
                    self._told.append(_key(value))
                    self._transcribe(value)
            elif isinstance(value, Group) and value.advantages is not None:
                if self._chosen is not None:
                    self._chosen.offer(value)
            elif isinstance(value, Group) and node == "rewards":
                for episode in value.episodes:
                    if not episode.status.failed or _key(episode) not in self._told:  # a reward may have failed it
                        self._transcribe(episode)

    def _count(self, episode: Episode) -> None:
        self.episodes[episode.status.value] += 1
        self.num_sampled += episode.num_sampled
        self.outcomes.episode(episode)

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Write a row of metrics; that of a step once the step is complete, with what became of its tasks."""
        if "step" not in row:
            self._write_row(node, row)
            return
        self._write_step({})
        self._held = (node, row)
        if "skipped" in row:  # a trainer's
            self.outcomes.stepped(None if row["updates"] else row["skipped"])
        if "skipped" not in row or self.outcomes.empty:
            self._write_step({})

    def tell(self, stage: str, row: Mapping[str, Any]) -> None:
        """Write a row that tells of the run beside its stages; it may have the ``phase`` that it is of, where that is over."""
        self._write_row(stage, row)

    def complete(self) -> None:
        """Write the row of the last step, of which no more is to be told."""
        self._write_step({})

    def listen(self, listener: Listener) -> None:
        """Have somebody hear of every row that is written, whole and with its place. It must be quick, and not raise."""
        self._listeners.append(listener)

    def write(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a JSON file, whole or not at all."""
        path = self.path / name
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.format(encode(content), indent=2) + b"\n")
        part.replace(path)
        return path

    def _write_step(self, counts: Mapping[str, int]) -> None:
        """Write the row that was held back, if there is one."""
        if self._held is not None:
            (node, row), self._held = self._held, None
            self.steps.add(row)
            self._write_row(node, {**row, **counts})
            if self._sampled is not None and "skipped" in row and (lines := self._sampled.of_step(row["step"])):
                with self._on_disk():
                    self._samples.write(lines)
                    self._samples.flush()

    def _write_row(self, node: str, row: Mapping[str, Any]) -> None:
        whole = {"time": _now(), "attempt": self.attempt, "phase": self.phase, "stage": node, **row}
        with self._on_disk():
            self._metrics.write(encode(whole) + b"\n")
            self._metrics.flush()
        for listener in self._listeners:
            listener(whole)

    @contextmanager
    def _on_disk(self) -> Generator[None]:
        """Say where it is that nothing can be written: a file that is open does not."""
        try:
            yield
        except OSError as error:
            if error.filename is not None:
                raise
            got = f"expected a disk that takes the rows of a run, got '{error.strerror}'; free some of it, then go on"
            raise OSError(error.errno, got, str(self.path)) from error

    @property
    def _files(self) -> Sequence[BinaryIO]:
        """Of rows; in the order of ``Sizes``."""
        return self._metrics, self._transcripts, self._samples

    def _taken(self) -> FileExistsError:
        return FileExistsError(
            f"expected a new run folder, got {self.path}, which has files in it; choose another --options.name, or remove it; "
            f"to go on with a run that lies there: headrace resume {self.path}"
        )

    def _transcribe(self, episode: Episode) -> None:
        if self._transcripts.tell() >= self._most:
            return
        row = {
            "attempt": self.attempt,
            "phase": self.phase,
            "task": episode.task.id,
            "birth": episode.birth,
            "member": episode.member,
            "retry": episode.retry,
            "status": episode.status.value,
            "error": episode.error,
            "reward": episode.reward,
            "parts": episode.parts,
            "answer": episode.task.answer,
            "version": int(episode.versions.max(initial=-1)),
            "num_sampled": episode.num_sampled,
            "seconds": episode.seconds,
            "timings": episode.timings,
            "turns": episode.turns,
            "messages": episode.messages,
        }
        with self._on_disk():
            self._transcripts.write(encode(row) + b"\n")


def _key(episode: Episode) -> tuple[int, int, int]:
    return episode.birth, episode.member, episode.retry


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")

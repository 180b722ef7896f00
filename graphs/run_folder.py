"""The folder of a run: metrics, transcripts, trace, checkpoints and the summary. Watches the graphs and writes what they tell.

``metrics.jsonl``: a row for each report of a stage; that of a step says what became of the tasks of each source too.
``episodes.jsonl``: transcripts, up to a bound.
``summary.json``: once, at the end, whatever the end was. Written elsewhere: ``audit.jsonl``, rows of each tool call, and
``revoked``, an empty file for each credential that was taken back.
"""

import datetime
import math
import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from stages.outcomes import Outcomes
from stages.records import Episode, Group

HELDOUT = "heldout"
"""What the names of nodes begin with whose episodes are not those of the phase: nothing of them is trained."""


class RunFolder:
    """Writes the files of one run. A context manager.

    Args:
        path: where; must not exist, or be empty.
        max_transcript_bytes: ``episodes.jsonl`` grows no further than this.

    Raises:
        FileExistsError: another run is there.
    """

    def __init__(self, path: Path, max_transcript_bytes: int = 20_000_000) -> None:
        self.path = path.absolute()
        self._left = max_transcript_bytes
        self._phase = ""
        self._step_rows: list[Mapping[str, Any]] = []
        self.episodes: Counter[str] = Counter()
        self.num_sampled = 0
        self.outcomes = Outcomes(self._write_step, beside=HELDOUT)
        self._held: tuple[str, Mapping[str, Any]] | None = None
        self._told = deque[tuple[int, int, int]](maxlen=1024)
        """Failed episodes lately, whose transcripts are written: that of one which a reward fails is not yet."""
        above = next(parent for parent in self.path.parents if parent.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise NotADirectoryError(f"expected a folder to write to, got '{above}', above {path}; choose --options.folder")
        if self.path.exists() and any(self.path.iterdir()):
            raise self._taken()

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            # Of two runs that found it empty, one gets it.
            self._metrics = (self.path / "metrics.jsonl").open("xb")
        except FileExistsError as error:
            raise self._taken() from error
        self._transcripts = (self.path / "episodes.jsonl").open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._write_step({})
        self._metrics.close()
        self._transcripts.close()

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """Rows of the steps of the phase under way, for the summary."""
        return self._step_rows

    def begin(self, phase: str) -> None:
        """Reports are of this phase from now on; counts start again."""
        self._write_step({})
        self._phase, self._step_rows = phase, []
        self.episodes.clear()
        self.outcomes.clear()
        self.num_sampled = 0

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Count episodes; write transcripts of failed ones at once and of the others when they are scored."""
        for value in values:
            if isinstance(value, Episode):
                if not node.startswith(HELDOUT):
                    self._count(value)
                if value.status.failed:
                    self._told.append(_key(value))
                    self._transcribe(value)
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
        self._step_rows.append(row)
        self._write_step({})
        self._held = (node, row)
        if "skipped" in row:  # a trainer's
            self.outcomes.stepped(None if row["updates"] else row["skipped"])
        if "skipped" not in row or self.outcomes.empty:
            self._write_step({})

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
            self._write_row(node, {**row, **counts})

    def _write_row(self, node: str, row: Mapping[str, Any]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self._metrics.write(encode({"time": now, "phase": self._phase, "stage": node, **row}) + b"\n")
        self._metrics.flush()

    def _taken(self) -> FileExistsError:
        return FileExistsError(
            f"expected a new run folder, got {self.path}, which has files in it; choose another --options.name, or remove it"
        )

    def _transcribe(self, episode: Episode) -> None:
        if self._left <= 0:
            return
        row = {
            "phase": self._phase,
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
            "messages": episode.messages,
        }
        line = encode(row) + b"\n"
        self._left -= len(line)
        self._transcripts.write(line)


def _key(episode: Episode) -> tuple[int, int, int]:
    return episode.birth, episode.member, episode.retry


def encode(content: Any) -> bytes:
    """JSON of anything a run tells. A number that is not finite becomes its name, since JSON has none for it."""
    return msgspec.json.encode(_finite(msgspec.to_builtins(content, enc_hook=_plain)))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"expected something JSON can hold, got {type(value).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return value

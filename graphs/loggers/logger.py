"""What a logger is: told one row after another, on a thread of its own, see ``aside``. Knows no package."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from graphs.runs.metrics import kind_of


class Logger(Protocol):
    """Told what a run measures. All calls come on one thread, in order; what they raise is told once, and the run goes on."""

    def row(self, row: Mapping[str, Any]) -> None:
        """Take a row of ``metrics.jsonl``. A number may be NaN or infinite."""
        ...

    def episode(self, episode: Mapping[str, Any]) -> None:
        """Take an episode that has ended: ``time``, ``phase``, ``seconds``, ``status``, ``task`` and counts."""
        ...

    def close(self, summary: Mapping[str, Any]) -> None:
        """Bring everything to where it goes.

        Args:
            summary: as in ``summary.json``.
        """
        ...


@dataclass(frozen=True)
class Told:
    """What a logger knows of its run when it is opened.

    Attributes:
        folder: of the run.
        name: of the run.
        program: name of the program.
        attempt: number of this start, from 0.
        config: settings, as in ``config.json``.
        rows: gives the rows that the run has written so far, those up to the commit it goes on from.
        superseded: gives the rows that came after that commit, and will come again.
    """

    folder: Path
    name: str
    program: str
    attempt: int
    config: Mapping[str, Any]
    rows: Callable[[], Sequence[Mapping[str, Any]]]
    superseded: Callable[[], Sequence[Mapping[str, Any]]]


def place_of(row: Mapping[str, Any]) -> int | None:
    """Where a row stands on the axis of its kind: the step, the version, the second; ``None`` where it has no place."""
    kind = kind_of(row)
    value = row.get({"health": "seconds", "evaluation": "version", "progress": "evaluated"}.get(kind or "", "step"))
    return None if value is None else int(value)

"""Tells others what a run measures: loggers, and whoever is to hear of an alert. Measuring is for ``health`` and the stages.

It listens to the rows that the run's folder writes, so that all are told the same.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flow import Run
from graphs.alerts.alerts import Alerts
from graphs.alerts.hooks import Hooks
from graphs.alerts.rules import Rule
from graphs.loggers.aside import CLOSING_S, Aside
from graphs.loggers.chosen import maker
from graphs.loggers.logger import Told
from graphs.program import Program
from graphs.runs.folder import HELDOUT, METRICS, RunFolder
from graphs.runs.json_rows import rows_in
from graphs.runs.metrics import ALERTS
from graphs.runs.options import SavingOptions
from graphs.runs.superseded import SUPERSEDED
from stages.records import Episode


class Telling:
    """Loggers and alerts of one start of a run. A watcher of its graphs.

    Args:
        program: what is run.
        folder: of the run.
        options: which loggers, rules and hooks.

    Raises:
        ValueError: a rule cannot be read.
    """

    def __init__(self, program: Program, folder: RunFolder, options: SavingOptions) -> None:
        self._program, self._folder, self._options = program, folder, options
        self._loggers: dict[str, Aside] = {}
        self._failures: deque[tuple[str, dict[str, Any]]] = deque()
        self._hooks = Hooks(options.alert_command, options.alert_webhook, self._hook_failed)
        self._alerts = Alerts(rules_of(program, options), folder.tell, self._mark, self._hooks)
        self._run: Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Begin to tell; the run's folder knows by now what it goes on from."""
        self._loop = asyncio.get_running_loop()
        path, config, size = self._folder.path, self._program.config, self._folder.sizes().metrics
        told = Told(
            folder=path,
            name=path.name,
            program=self._program.name,
            attempt=self._folder.attempt,
            config={} if config is None else config.model_dump(mode="json"),
            rows=lambda: list(rows_in(path / METRICS, size)),
            superseded=lambda: list(_superseded(path / SUPERSEDED)),
        )
        self._hooks.__enter__()
        for name in self._options.loggers:
            self._loggers[name] = Aside(name, maker(name, told), lambda text: self._failed(*_of_logger(text)))
        self._folder.listen(self._hear)

    @contextlib.contextmanager
    def of(self, run: Run) -> Generator[None]:
        """Tell of a run while it is at work; its trace gets the alerts."""
        self._run = run
        try:
            yield
        finally:
            self._run = None

    def close(self, summary: Mapping[str, Any]) -> None:
        """Bring all to an end, within half a minute; what takes longer is left behind, with a warning."""
        if self._loop is None:
            return
        self._folder.complete()
        if self._options.alerts and summary.get("status") == "completed" and (texts := self._alerts.unjudged()):
            told = f"nothing was judged by {', '.join(map(repr, texts))}: no row had such a metric"
            self._failures.append((ALERTS, {"warning": told}))
        loggers, self._loggers = self._loggers, {}
        deadline = time.monotonic() + CLOSING_S
        for name, logger in loggers.items():
            if not logger.close(summary, max(deadline - time.monotonic(), 1.0)):
                self._failures.append(_of_logger(f"the logger {name} was left behind, since it did not end in time"))
            elif logger.dropped:
                self._failures.append(_of_logger(f"the logger {name} was too slow for {logger.dropped} rows"))
        self._hooks.__exit__()
        self._say()

    def dropped(self) -> int:
        """Rows that loggers did not take so far."""
        return sum(logger.dropped for logger in self._loggers.values())

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Tell of episodes that have ended."""
        if self._loggers and not node.startswith(HELDOUT):
            for value in values:
                if isinstance(value, Episode):
                    told = {"time": datetime.now(UTC).isoformat(), "phase": self._folder.phase, **_of_episode(value)}
                    for logger in self._loggers.values():
                        logger.episode(told)

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Nothing: rows are told as they are written."""

    def _hear(self, row: Mapping[str, Any]) -> None:
        for logger in self._loggers.values():
            logger.row(row)
        self._alerts.hear(row)

    def _mark(self, name: str, args: dict[str, Any]) -> None:
        if self._run is not None and self._run.scribe is not None:
            self._run.scribe.instant(name, args)

    def _hook_failed(self, text: str, alert: Mapping[str, Any]) -> None:
        # It took some seconds to find out, and by then the run may be at another phase.
        self._failed(ALERTS, {"phase": alert["phase"], "warning": text})

    def _failed(self, stage: str, row: dict[str, Any]) -> None:
        """On any thread: something could not be told."""
        self._failures.append((stage, row))
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the run
                self._loop.call_soon_threadsafe(self._say)

    def _say(self) -> None:
        while self._failures:
            stage, row = self._failures.popleft()
            with contextlib.suppress(OSError):  # of a disk that is full the rows of stages tell
                self._folder.tell(stage, row)


def _of_logger(text: str) -> tuple[str, dict[str, Any]]:
    return "loggers", {"warning": text}


def rules_of(program: Program, options: SavingOptions) -> tuple[Rule, ...]:
    """What is watched in a run of a program. Stages of the user's own may report metrics of their own.

    Raises:
        ValueError: naming all rules that cannot be read.
    """
    return options.rules(own=program.parts is None or ".py:" in (program.made_by or ""))


def _of_episode(episode: Episode) -> dict[str, Any]:
    return {
        "seconds": episode.seconds,
        "status": episode.status.value,
        "task": episode.task.id,
        "birth": episode.birth,
        "member": episode.member,
        "turns": len(episode.turns),
        "sampled_tokens": episode.num_sampled,
    }


def _superseded(file: Path) -> Iterator[Mapping[str, Any]]:
    for moved in rows_in(file):
        if moved.get("file") == METRICS and "row" in moved:
            yield moved["row"]

"""What people see while a program runs: a live screen on a terminal, plain lines elsewhere. Reads; never decides anything.

What the screen looks like is in ``screen``.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flow import Run, Summary
from flow.explain import limit
from graphs.program import Phase
from graphs.runs.errors import ERRORS, error_file, in_short
from graphs.runs.folder import METRICS, RunFolder
from graphs.runs.json_rows import rows_in
from graphs.runs.metrics import ALERTS, HEALTH
from graphs.runs.progress import line_of, steps_done
from graphs.runs.recent import Recent
from graphs.runs.screen import Problem, Shown, lines, metrics

_REFRESH_S = 0.5
_LINE_EVERY_S = 5.0
_EXPECTED = {"surplus", "group closed", "group dropped", "late"}
"""Reasons that say nothing is wrong."""
_MOST_POINTS = 4096
"""Points of a curve; when there are more, every second one goes."""


class View:
    """Shows one program on a console.

    Args:
        console: where; plain lines if it is not a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._warned: set[str] = set()
        self._phase: Phase | None = None
        self._run: Run | None = None
        self._folder: RunFolder | None = None
        self._began = self._printed = 0.0
        self._after = 0
        self._clear()

    def _clear(self) -> None:
        self._row: Mapping[str, Any] = {}
        self._health: Mapping[str, Any] = {}
        self._rewards: list[float] = []
        self._heldout: list[float] = []
        self._alerts: dict[tuple[str, str], str] = {}
        self._recent = Recent()
        self._warned.clear()

    def say(self, text: str) -> None:
        """Print a line above whatever is live."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=not self._console.is_terminal)

    @contextlib.contextmanager
    def opening(self, what: str) -> Generator[None]:
        """Say what takes time before anything can be shown."""
        began = time.monotonic()
        yield
        self.say(f"{what}: {time.monotonic() - began:.1f} s")

    @contextlib.contextmanager
    def showing(self, phase: Phase, run: Run, folder: RunFolder, after: int = 0) -> Generator[None]:
        """Show a phase while it runs.

        Args:
            phase: what is shown.
            run: of its graph.
            folder: of the run; its rows come by ``hear``.
            after: steps that it has taken before, where it is gone on with.
        """
        self._clear()
        self._phase, self._run, self._folder, self._after = phase, run, folder, after
        self._began = self._printed = time.monotonic()
        if after:
            self._recall(phase.name, folder)
        self.say(f"{phase.title}; goes on after step {after}{_of(phase.total)}" if after else phase.title)
        if not self._console.is_terminal:
            with _logged(self._warn):
                yield
            return
        with (
            _logged(self._warn),
            Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop") as live,
        ):
            self._draw(live, self._shown())
            task = asyncio.get_running_loop().create_task(self._refresh(live))
            try:
                yield
            finally:
                task.cancel()
                task.add_done_callback(self._refreshed)

    # --- what it hears ---

    def hear(self, row: Mapping[str, Any]) -> None:
        """Take a row of metrics as it was written; print it where nothing is live and enough time has passed."""
        if row.get("warning"):
            self._warn(str(row["warning"]))
        if row["stage"] == ALERTS:
            self._alert(row)
        elif row["stage"] == HEALTH:
            self._health = row
        else:
            self._row = {**self._row, **row}  # rows of an evaluation come between those of steps
            self._point(row)
            self._print(row)

    def _recall(self, phase: str, folder: RunFolder) -> None:
        """Begin the curves of a phase that is gone on with where it began itself."""
        for row in rows_in(folder.path / METRICS, folder.sizes().metrics):
            if row.get("phase") == phase:
                self._point(row)

    def _point(self, row: Mapping[str, Any]) -> None:
        _keep(self._rewards, row.get("reward_mean"))
        _keep(self._heldout, row.get("heldout"))

    def _print(self, row: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if self._run is None or self._console.is_terminal or now - self._printed < _LINE_EVERY_S:
            return
        self._printed = now
        self.say(f"  {self._progress(row.get('step'))}  {'  '.join(metrics(self._row))}")

    def _warn(self, text: str) -> None:
        """Print a warning the first time its kind occurs in a phase."""
        kind = "".join(character for character in text if not character.isdigit())
        if kind not in self._warned:
            self._warned.add(kind)
            self.say(f"  warning: {text} (said once a phase)" if "(said once)" not in text else f"  warning: {text}")

    def _alert(self, row: Mapping[str, Any]) -> None:
        if "alert" not in row:
            return
        value = row["value"] if isinstance(row["value"], str) else f"{row['value']:.4g}"
        text = f"{row['alert']}: {value} in {row['of_stage']}"
        if row["state"] == "raised":
            self._alerts[row["alert"], row["of_stage"]] = text
            self.say(f"  alert: {text}")
        else:
            self._alerts.pop((row["alert"], row["of_stage"]), None)
            self.say(f"  over: {text}")

    # --- the end of a phase ---

    def finished(self, phase: Phase, outcome: Summary, summary: Mapping[str, Any]) -> None:
        """Print how a phase ended."""
        result = f", {summary[phase.name]:.1%} success" if phase.name in summary else ""
        last = f", {'  '.join(metrics(self._row))}" if "step" in self._row else ""
        self.say(f"  {outcome.status} in {outcome.seconds:.1f} s{result}{last}")
        for name, node in outcome.nodes.items():
            for reason, count in {**node.dropped, **node.lost}.items():
                if reason not in _EXPECTED:
                    self.say(f"  {name}: {count} dropped, {reason}")
        for problem in _problems(outcome):
            file = error_file(self._folder.path / ERRORS, problem.stage, problem.kind) if self._folder else ""
            self.say(f"  {problem.stage}: {problem.kind}: {problem.text[:200]}; all of it: {file}")

    # --- the live screen ---

    def _refreshed(self, task: "asyncio.Task[None]") -> None:
        """The live screen is gone: if it broke, say so; the run itself went on."""
        if not task.cancelled() and task.exception() is not None:
            self.say(f"the live view broke: {task.exception()!r}")

    async def _refresh(self, live: Live) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            await asyncio.to_thread(self._draw, live, self._shown())

    def _draw(self, live: Live, shown: Shown) -> None:
        width, height = self._console.size
        live.update(Text("\n").join(lines(shown, width, max(height - 1, 4))), refresh=True)

    def _shown(self) -> Shown:
        """What is known now."""
        assert self._run is not None
        assert self._phase is not None
        assert self._folder is not None
        self._recent.see(self._run.summary())
        nodes, total = self._recent.nodes(), self._phase.total
        line, limited = line_of(self._run.plan), limit(self._recent.then, self._recent.now)
        return Shown(
            title=self._phase.title,
            progress=self._progress(),
            share=steps_done(self._run) / total if total else None,
            row=self._row,
            health=self._health,
            nodes=[node for node in nodes if node.name in line],
            beside=[node for node in nodes if node.name not in line],
            rewards=tuple(self._rewards),
            heldout=tuple(self._heldout),
            statuses=dict(self._folder.episodes),
            limit=None if limited is None else limited.text,
            problems=_problems(self._recent.now),
            alerts=tuple(self._alerts.values()),
            errors=str(self._folder.path / ERRORS),
        )

    def _progress(self, step: int | None = None) -> str:
        assert self._run is not None
        done = steps_done(self._run) if step is None else step
        total = self._phase.total if self._phase else None
        spent, here = time.monotonic() - self._began, done - self._after
        left = f", {_clock(spent / here * (total - done))} left" if total and here > 0 else ""
        return f"{done}{f'/{total}' if total else ''} in {_clock(spent)}{left}"


class _Said(logging.Handler):
    """Hands on what is logged."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on a record, of whatever thread."""
        self._say(record.getMessage())


@contextlib.contextmanager
def _logged(say: Callable[[str], None]) -> Generator[None]:
    """Say what the engine logs meanwhile: written past the live screen it would leave lines of it behind."""
    log, handler = logging.getLogger("headrace"), _Said(say)
    log.addHandler(handler)
    propagated, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.propagate = propagated
        log.removeHandler(handler)


def _keep(points: list[float], value: Any) -> None:
    if isinstance(value, int | float) and math.isfinite(value):
        points.append(float(value))
        if len(points) > _MOST_POINTS:
            del points[::2]


def _problems(summary: Summary) -> list[Problem]:
    """Kinds of errors by stage, the most frequent first."""
    counts: dict[str, int] = {}
    for node in summary.nodes.values():
        for reason, count in (*node.dropped.items(), *node.lost.items()):
            counts[reason] = counts.get(reason, 0) + count
    found = [
        Problem(name, kind, counts.get(kind, 0), in_short(kind, trace))
        for name, node in summary.nodes.items()
        for kind, trace in node.failures.items()
    ]
    return sorted(found, key=lambda problem: -problem.count)


def _of(total: int | None) -> str:
    return f" of {total}" if total else ""


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

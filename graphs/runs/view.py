"""What people see while a program runs: a live table on a terminal, plain lines elsewhere. Reads; never decides anything."""

import asyncio
import contextlib
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flow import Run, Summary
from graphs.program import Phase
from graphs.runs.progress import steps_done

_REFRESH_S = 0.25
_LINE_EVERY_S = 5.0
_SHADES = {"work": "green", "input": "bright_black", "ticket": "magenta", "pool": "yellow", "output": "red"}
_EXPECTED = {"surplus", "group closed", "group dropped", "late"}
"""Reasons that say nothing is wrong."""
_LABELS = {"work": "work", "input": "no input", "ticket": "no ticket", "pool": "no pool", "output": "no room"}
_COLUMNS = (
    ("loss", "loss", "{:.3f}"), ("reward_mean", "reward", "{:.3f}"), ("success", "success", "{:.1%}"),
    ("lag_mean", "lag", "{:.2f}"), ("engine_gap", "engine gap", "{:.0e}"),
    ("goodput", "goodput", "{:.0%}"), ("sampled_per_second", "sampled/s", "{:,.0f}"),
    ("step_s", "s/step", "{:.2f}"), ("heldout", "held-out", "{:.1%}"), ("success_so_far", "success so far", "{:.1%}"),
)  # fmt: skip


class View:
    """Shows one program on a console.

    Args:
        console: where; plain lines if it is not a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._row: Mapping[str, Any] = {}
        self._warned: set[str] = set()
        self._phase: Phase | None = None
        self._run: Run | None = None
        self._began = self._printed = 0.0
        self._after = 0

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
    def showing(self, phase: Phase, run: Run, after: int = 0) -> Generator[None]:
        """Show a phase while it runs.

        Args:
            phase: what is shown.
            run: of its graph.
            after: steps that it has taken before, where it is gone on with.
        """
        self._phase, self._run, self._row, self._after = phase, run, {}, after
        self._warned.clear()
        self._began = self._printed = time.monotonic()
        self.say(f"{phase.title}; goes on after step {after}{_of(phase.total)}" if after else phase.title)
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            task = asyncio.get_running_loop().create_task(self._refresh(live))
            try:
                yield
            finally:
                task.cancel()
                task.add_done_callback(self._refreshed)

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Nothing: the counts are read from the run."""

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Keep the newest row; print it where nothing is live and enough time has passed."""
        self._row = {**self._row, **row}  # rows of an evaluation come between those of steps
        self._warn(str(row.get("warning") or ""))
        now = time.monotonic()
        if self._console.is_terminal or now - self._printed < _LINE_EVERY_S:
            return
        self._printed = now
        self.say(f"  {self._progress(row.get('step'))}  {_metrics(row)}")

    def _warn(self, text: str) -> None:
        """Print a warning the first time its kind occurs in a phase."""
        kind = "".join(character for character in text if not character.isdigit())
        if kind and kind not in self._warned:
            self._warned.add(kind)
            self.say(f"  warning: {text} (said once)")

    def finished(self, phase: Phase, outcome: Summary, summary: Mapping[str, Any]) -> None:
        """Print how a phase ended."""
        result = f", {summary[phase.name]:.1%} success" if phase.name in summary else ""
        last = f", {_metrics(self._row)}" if "step" in self._row else ""
        self.say(f"  {outcome.status} in {outcome.seconds:.1f} s{result}{last}")
        for name, node in outcome.nodes.items():
            for reason, count in {**node.dropped, **node.lost}.items():
                if reason not in _EXPECTED:
                    self.say(f"  {name}: {count} dropped, {reason}")

    def _refreshed(self, task: "asyncio.Task[None]") -> None:
        """The live table is gone: if it broke, say so; the run itself went on."""
        if not task.cancelled() and task.exception() is not None:
            self.say(f"the live view broke: {task.exception()!r}")

    async def _refresh(self, live: Live) -> None:
        while True:
            live.update(self._render(), refresh=True)
            await asyncio.sleep(_REFRESH_S)

    def _render(self) -> Group:
        assert self._run is not None
        summary = self._run.summary()
        return Group(self._bar(), Text(_metrics(self._row)), _table(summary))

    def _bar(self) -> Table:
        assert self._run is not None
        done, total = steps_done(self._run), (self._phase.total if self._phase else None) or 0
        grid = Table.grid(padding=(0, 1))
        grid.add_row(ProgressBar(total=max(total, 1), completed=done, width=40), Text(self._progress()))
        return grid

    def _progress(self, step: int | None = None) -> str:
        assert self._run is not None
        done = steps_done(self._run) if step is None else step
        total = self._phase.total if self._phase else None
        spent, here = time.monotonic() - self._began, done - self._after
        left = f", {_clock(spent / here * (total - done))} left" if total and here > 0 else ""
        return f"{done}{f'/{total}' if total else ''} in {_clock(spent)}{left}"


def _of(total: int | None) -> str:
    return f" of {total}" if total else ""


def _table(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for heading, justify in (("stage", "left"), ("in", "right"), ("/s", "right"), ("waiting", "right"), ("dropped", "right")):
        table.add_column(heading, justify=justify)  # pyright: ignore[reportArgumentType]
    legend = [part for state, label in _LABELS.items() for part in ((label, _SHADES[state]), " ")]
    table.add_column(Text.assemble("time: ", *legend))
    for name, node in summary.nodes.items():
        count = node.taken or node.emitted
        dropped = sum(node.dropped.values())
        rate = count / summary.seconds if summary.seconds else 0.0
        table.add_row(name, str(count), f"{rate:.1f}", str(node.depth), str(dropped or ""), _shares(node.shares))
    return table


def _shares(shares: Mapping[Any, float], width: int = 40) -> Text:
    text = Text()
    for state in _LABELS:
        text.append("█" * round(shares[state] * width), style=_SHADES[state])
    text.append(f" {shares['work']:.0%}")
    return text


def _metrics(row: Mapping[str, Any]) -> str:
    if row.get("lag_max") is not None and row.get("step_s"):
        row = {**row, "sampled_per_second": row["sampled_tokens"] / row["step_s"]}
    return "  ".join(f"{label} {form.format(row[key])}" for key, label, form in _COLUMNS if row.get(key) is not None)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

"""What is printed while a program runs, on a terminal and elsewhere."""

import asyncio
import io
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from flow import Context, Drop, Graph, Run
from graphs.program import Phase
from graphs.runs.folder import RunFolder
from graphs.runs.view import View


async def work(number: int, context: Context) -> int:
    if number == 2:
        raise ZeroDivisionError("two")
    logging.getLogger("headrace").warning("the event loop stood still for %d ms", 60 + number)
    context.report({"step": number + 1, "reward_mean": number / 10, "skipped_total": 0})
    await asyncio.sleep(0.01)
    return number


async def keep(number: int, context: Context) -> None:
    pass


def graph(folder: Path | None) -> Graph:
    made = Graph("working")
    numbers = made.source("numbers", range(4))
    numbers >> made.stage("works", work, on_error=Drop()) >> made.sink("kept", keep)
    return made


def shown(tmp_path: Path, *rows: tuple[str, Mapping[str, Any]], terminal: bool, before: Sequence[float] = ()) -> str:
    """What is printed of a phase in which somebody told these rows."""
    told = io.StringIO()
    view = View(Console(file=told, force_terminal=terminal, width=80, height=24, color_system=None))
    phase = Phase("working", "working: 3 numbers", graph, total=3)

    async def main(folder: RunFolder) -> None:
        folder.listen(view.hear)
        folder.begin("working")
        for reward in before:
            folder.tell("works", {"step": 1, "reward_mean": reward})
        run = Run(graph(None).build(quiet=True), watchers=(folder,))
        with view.showing(phase, run, folder, after=len(before)):
            for stage, row in rows:
                folder.tell(stage, row)
            outcome = await run.finish()
        view.finished(phase, outcome, {})

    with RunFolder(tmp_path / "run") as folder:
        asyncio.run(main(folder))
    return told.getvalue()


def alert(state: str) -> tuple[str, Mapping[str, Any]]:
    return "alerts", {"alert": "lag_mean>2", "state": state, "metric": "lag_mean", "value": 3.5, "of_stage": "trainer"}


def test_without_a_terminal_there_are_plain_lines(tmp_path: Path) -> None:
    text = shown(tmp_path, alert("raised"), alert("cleared"), terminal=False)
    assert text.splitlines()[:3] == [
        "working: 3 numbers",
        "  alert: lag_mean>2: 3.5 in trainer",
        "  over: lag_mean>2: 3.5 in trainer",
    ]
    assert "\x1b" not in text
    assert text.count("warning: the event loop stood still for") == 1
    assert "completed in" in text


def test_an_error_is_told_by_its_kind_with_the_file_of_its_traceback(tmp_path: Path) -> None:
    text = shown(tmp_path, terminal=False).replace("\n", " ")
    assert re.search(r"works: ZeroDivisionError: two \(test_view\.py:\d+\); all of it: ", text)
    assert "run/errors/works-ZeroDivisionError.txt" in text


def test_on_a_terminal_the_screen_is_drawn_and_taken_away_and_what_is_logged_does_not_tear_it(tmp_path: Path) -> None:
    text = shown(tmp_path, alert("raised"), terminal=True)
    assert "stage" in text
    assert "alert: lag_mean>2: 3.5 in trainer" in text
    assert text.count("warning: the event loop stood still for") == 1
    after = text[text.rindex("\x1b[?25h") :]
    assert "completed in" in after
    assert logging.getLogger("headrace").propagate


def test_a_warning_and_a_logger_that_failed_are_said_once(tmp_path: Path) -> None:
    row = ("loggers", {"warning": "the logger wandb failed: OSError: no room (said once)"})
    text = shown(tmp_path, row, row, terminal=False)
    assert text.count("no room (said once)") == 1
    assert "(said once) (said once)" not in text


def test_curves_of_a_phase_that_is_gone_on_with_begin_where_it_began(tmp_path: Path) -> None:
    text = shown(tmp_path, terminal=True, before=[0.0, 0.5, 1.0])
    first = next(line for line in text.splitlines() if line.startswith("reward   "))
    assert first.startswith("reward   ▁▅█ 1.000")

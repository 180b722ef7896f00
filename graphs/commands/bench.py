"""``headrace bench``: experiments that measure a graph on real work, what each found, and whether it came out as wanted.

What was found is kept as ``OUT/NAME.json``. Exit status 1 where something did not come out as wanted.
"""

import dataclasses
import datetime
import difflib
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table as Grid

from graphs.bench.experiment import Cell, Claim, Column, Experiment, Findings, Table
from graphs.bench.suite import EXPERIMENTS
from graphs.commands.command_line import Work, tell
from graphs.runs.json_rows import encode
from graphs.settings import read_settings

OUT = Path("runs") / "bench"
_COLUMN = 9
"""Least characters of a column that can be read."""
_MARKS = {True: "holds", False: "DOES NOT HOLD", None: ""}
_BOUNDS = {"least": "at least ", "most": "at most ", "equal": ""}


def listed() -> str:
    """The experiments, a line each."""
    width = max(map(len, EXPERIMENTS))
    return "\n".join(f"  {name:<{width}}  {each.title}" for name, each in EXPERIMENTS.items())


def bench(arguments: list[str]) -> Work | None:
    """Read which experiments are asked for, and give what runs them; without any tell which there are.

    Raises:
        LookupError: there is none of this name.
        ValueError: settings for all of them at once, or an argument without its value.
    """
    if not arguments:
        tell(listed())
        return None
    name, *rest = arguments
    short, rest = "--short" in rest, [each for each in rest if each != "--short"]
    as_json, rest = "--json" in rest, [each for each in rest if each != "--json"]
    out, rest = _taken("--out", rest)
    if name == "all":
        if rest:
            raise ValueError(f"expected no settings for all experiments at once, got {' '.join(rest)}; run one by its name")
        chosen = [(each, each.short if short else each.config()) for each in EXPERIMENTS.values()]
    else:
        each = _find(name)
        default = each.short if short else each.config()
        field = ("config", Annotated[each.config, tyro.conf.arg(name="")], dataclasses.field(default_factory=lambda: default))
        kind: type[Any] = dataclasses.make_dataclass("Settings", [field])
        chosen = [(each, read_settings(kind, rest, f"headrace bench {name}").config)]
    folder = OUT if out is None else Path(out)

    def work() -> None:
        held = [_run(each, config, folder, as_json=as_json, short=short) for each, config in chosen]
        if not all(held):
            raise SystemExit(1)

    return work


def _find(name: str) -> Experiment:
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name, EXPERIMENTS, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise LookupError(f"expected one of all, {', '.join(EXPERIMENTS)}, got '{name}', in bench{hint}")


def _taken(flag: str, arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of an argument, and the others."""
    rest = list(arguments)
    if flag not in rest:
        return None, rest
    at = rest.index(flag)
    if at + 1 == len(rest):
        raise ValueError(f"expected a value after {flag}, got nothing; {flag} {OUT}, for example")
    return rest[at + 1], rest[:at] + rest[at + 2 :]


def _run(experiment: Experiment, config: Any, folder: Path, *, as_json: bool, short: bool) -> bool:
    console = Console(stderr=True)
    told = ""

    def on_the_way(done: int, total: int, what: str) -> None:
        nonlocal told
        line = f"{experiment.name}: {done} of {total}, {what}"
        if line != told:
            console.print(line, style="dim", highlight=False, markup=False)
        told = line

    began, load = time.monotonic(), os.getloadavg()[0]
    findings = experiment.run(config, on_the_way)
    kept = {
        "experiment": experiment.name,
        "short": short,
        "settings": config.model_dump(mode="json"),
        "findings": findings,
        "claims": [{"what": claim.what, "holds": claim.holds} for claim in findings.claims],
        "holds": findings.holds,
        "seconds": time.monotonic() - began,
        "load": [load, os.getloadavg()[0]],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    content, file = encode(kept), folder / f"{experiment.name}.json"
    partial = file.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(file)
    if as_json:
        sys.stdout.write(content.decode() + "\n")
    else:
        show(experiment, findings, Console(highlight=False))
        tell(f"written: {file}")
    return findings.holds


def show(experiment: Experiment, findings: Findings, console: Console) -> None:
    """Print what an experiment found: the answer, what was wanted, the measurements."""
    console.print(f"\n{experiment.title}", style="bold", markup=False)
    console.print(findings.answer, markup=False)
    for claim in findings.claims:
        console.print(_line(claim), style="red" if claim.holds is False else None, markup=False)
    for table in findings.tables:
        if len(table.columns) * _COLUMN <= console.width:
            console.print(_grid(table))
        else:
            console.print(f"\n{table.title}", markup=False)
            for row in table.rows:
                console.print("; ".join(_told(table.columns, row)), markup=False)
        if table.note:
            console.print(table.note, style="dim", markup=False)
    for note in findings.notes:
        console.print(f"Note: {note}", style="dim", markup=False)


def _told(columns: Sequence[Column], row: Any) -> Iterator[str]:
    """A row of a table that is too wide, in words."""
    for column, cell in zip(columns, _cells(columns, row), strict=True):
        if cell:
            unit = "" if column.unit in ("", "share") else f" {column.unit}"
            yield f"{column.head}: {cell}{unit}"


def _line(claim: Claim) -> str:
    if claim.kind == "equal" and claim.holds:
        return f"  {claim.what}: as stated"
    bound = "" if claim.wanted is None else f" ({_BOUNDS[claim.kind]}{_text(claim.wanted)} wanted)"
    mark = _MARKS[claim.holds]
    return f"  {claim.what}: {_text(claim.got)}{bound}" + (f"  {mark}" if mark else "")


def _grid(table: Table) -> Grid:
    grid = Grid(title=table.title, title_justify="left", title_style="", header_style="")
    for column in table.columns:
        unit = f" ({column.unit})" if column.unit not in ("", "share") else ""
        words = any(isinstance(row.get(column.name), str) for row in table.rows)
        grid.add_column(column.head + unit, justify="left" if words else "right", overflow="fold")
    for row in table.rows:
        grid.add_row(*_cells(table.columns, row))
    return grid


def _cells(columns: Sequence[Column], row: Any) -> Iterator[str]:
    for column in columns:
        cell = row.get(column.name)
        if column.unit == "share" and isinstance(cell, float):
            yield f"{cell:.1%}"
        else:
            yield _text(cell, column.digits)


def _text(cell: Cell, digits: int = 4) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.{digits}g}" if abs(cell) < 1e4 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell

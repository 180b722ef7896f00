"""``headrace bench``: lists the experiments, runs one or all, writes their findings as a page, or compares two folders of them.

Exit status: 0 where every claim held, 1 where one did not or an experiment failed, 2 for what the user can mend.
"""

import contextlib
import dataclasses
import difflib
import shlex
import shutil
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from graphs.bench.compared import compared
from graphs.bench.experiment import Experiment, Tell
from graphs.bench.kept import as_line, file_of, read_folder, read_kept, write_kept
from graphs.bench.measured import measured
from graphs.bench.page import write_page
from graphs.bench.shown import MARKS, sentence
from graphs.bench.suite import EXPERIMENTS
from graphs.bench.text import text
from graphs.bench.web import write_web
from graphs.commands.bench_all import measure_all
from graphs.commands.command_line import Work, tell
from graphs.report.tables import clock
from graphs.settings import read_settings

OUT = Path("runs/bench")
_PUBLISHED = Path(__file__).parents[2] / "docs" / "bench"
"""Findings that the page of the documentation is made of, where headrace runs from its source."""
_PLAIN = 80
"""Columns where there is no terminal."""
_STYLES = {"holds": "green", "does not": "bold red", "no bound": "dim"}


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """What is made of findings."""

    out: Path = OUT
    """Folder that they are kept in, as NAME.json."""
    short: tyro.conf.FlagCreatePairsOff[bool] = False
    """Settings with which it takes seconds, for a first look; claims need not hold."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print them as one line of JSON, for scripts, in place of text."""


def bench(arguments: list[str]) -> Work | None:
    """List, or give what measures or writes.

    Raises:
        ValueError, LookupError, OSError: what the user can mend.
        SystemExit: after tyro told what it does not know.
    """
    if not arguments:
        tell(listed())
        return None
    first, *rest = arguments
    if first == "page":
        return _page(rest)
    if first == "compare":
        return _compare(rest)
    if first == "all":
        return _all(rest)
    return _one(_find(first), rest)


def listed() -> str:
    """The experiments, what each asks, and how long it took where that is known."""
    lines = ["experiments, in the order of headrace bench all:", ""]
    for name, experiment in EXPERIMENTS.items():
        apart = ", measured only when asked for by name" if experiment.long else ""
        lines += [f"  {name:<12} {sentence(experiment.title)}", f"  {'':<12} {_took(name)}{apart}"]
    return "\n".join([*lines, "", "headrace bench NAME measures one; headrace bench NAME --help lists its settings"])


def _took(name: str) -> str:
    for folder, where in ((OUT, "here"), (_PUBLISHED, "when docs/bench.md was written")):
        with contextlib.suppress(OSError, ValueError):
            kept = read_kept(file_of(folder, name))
            return f"took {clock(kept.seconds)} {where}" + (", with --short" if kept.short else "")
    return "not measured here yet"


def _find(name: str) -> Experiment:
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    known = [*EXPERIMENTS, "all", "page", "compare"]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean '{near[0]}'?" if near else "headrace bench lists them"
    raise LookupError(f"expected one of {', '.join(known)}, got '{name}', in bench; {hint}")


def _one(experiment: Experiment, arguments: list[str]) -> Work:
    config, options = _read(experiment, arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["headrace", "bench", experiment.name, *_without_output(arguments)])

    def work() -> None:
        with _telling(experiment.name) as tell_progress:
            kept = measured(experiment, config, command, tell_progress, short=options.short)
        file = write_kept(options.out, kept)
        if options.json:
            sys.stdout.write(as_line(kept).decode() + "\n")
        else:
            _print(text(kept, _columns()))
            tell(f"\nkept: {file}")
        if not kept.holds:
            raise SystemExit(1)

    return work


def _read(experiment: Experiment, arguments: list[str]) -> tuple[BaseModel, BenchOptions]:
    """Settings of an experiment and options, all at one level."""
    start = experiment.short if "--short" in arguments else experiment.config()
    fields: list[Any] = [
        ("config", Annotated[experiment.config, tyro.conf.arg(name="")], dataclasses.field(default_factory=lambda: start)),
        ("options", Annotated[BenchOptions, tyro.conf.arg(name="")], dataclasses.field(default_factory=BenchOptions)),
    ]
    read = read_settings(dataclasses.make_dataclass("Settings", fields), arguments, f"headrace bench {experiment.name}")
    return read.config, read.options


def _without_output(arguments: Sequence[str]) -> list[str]:
    """Arguments but for those that say where findings go."""
    kept: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--out":
            next(left, None)
        elif argument != "--json" and not argument.startswith("--out="):
            kept.append(argument)
    return kept


def _all(arguments: list[str]) -> Work:
    options = read_settings(BenchOptions, arguments, "headrace bench all")
    options.out.mkdir(parents=True, exist_ok=True)
    names = [name for name, experiment in EXPERIMENTS.items() if not experiment.long]
    more = [*(["--short"] if options.short else []), *(["--json"] if options.json else [])]
    apart = [name for name, experiment in EXPERIMENTS.items() if experiment.long]

    def work() -> None:
        console = Console(stderr=options.json, soft_wrap=True, highlight=False, markup=False)
        holds = measure_all(names, options.out, more, console.print)
        if apart:
            console.print(f"not measured, since they take long: {', '.join(apart)}; headrace bench NAME")
        if not holds:
            raise SystemExit(1)

    return work


def _page(arguments: list[str]) -> None:
    if len(arguments) != 2 or Path(arguments[1]).suffix not in (".md", ".html"):
        raise ValueError(
            f"expected a folder of findings and a file, NAME.md or NAME.html, got {' '.join(arguments) or 'nothing'}, in bench "
            "page; write headrace bench page runs/bench bench.html"
        )
    folder, doc = map(Path, arguments)
    found = read_folder(folder, EXPERIMENTS)
    written = [write_web(found, doc)] if doc.suffix == ".html" else write_page(found, doc)
    pictures = f" and {len(written) - 1} pictures in {doc.with_suffix('')}" if len(written) > 1 else ""
    tell(f"written: {doc}{pictures}")


def _compare(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise ValueError(
            f"expected two folders of findings, got {' '.join(arguments) or 'nothing'}, in bench compare; write headrace bench "
            "compare FOLDER OTHER"
        )
    one, other = (read_folder(Path(folder), EXPERIMENTS) for folder in arguments)
    tell(compared(one, other, (arguments[0], arguments[1])))


@contextlib.contextmanager
def _telling(name: str) -> Generator[Tell]:
    """Progress on standard error, drawn only when something is told: a thread that draws would disturb what is measured."""
    console = Console(stderr=True, soft_wrap=True)
    if not console.is_terminal:
        yield lambda done, total, what: console.print(f"{name}: {done} of {total}, {what}", highlight=False, markup=False)
        return
    columns = (TextColumn("{task.fields[name]}", markup=False), BarColumn(bar_width=20), MofNCompleteColumn(),
               TextColumn("{task.description}", markup=False))  # fmt: skip
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("begins", total=None, name=name)

        def show(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total, description=what, refresh=True)

        yield show


def _columns() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN


def _print(told: str) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for line in told.splitlines():
        styled = Text(line)
        for mark in MARKS.values():
            if line.startswith(f"  {mark}"):
                styled.stylize(_STYLES[mark], 2, 2 + len(mark))
        if line.endswith(":") and not line.startswith(" "):
            styled.stylize("bold")
        console.print(styled)

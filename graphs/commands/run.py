"""``headrace run`` and ``headrace resume``: from the arguments to what is left to do. Running itself is in ``graphs.runs``.

Exit status of both: 0 completed, 130 suspended by an interrupt or SIGTERM, 1 failed or stopped by its settings, 2 refused.
"""

import asyncio
import datetime
import itertools
from pathlib import Path
from typing import Any

from rich.console import Console

from flow.saving import CannotResume, newest
from graphs.commands.command_line import Work, read_again, read_program, tell, warn
from graphs.program import Program
from graphs.runs.execute import execute, prepare
from graphs.runs.execution import Prepared
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.profiled import profile_of
from graphs.runs.progress import BEGINNING, Start
from graphs.runs.resuming import check_program, check_saves, check_unchanged, find_start, summed_up, with_changes
from graphs.runs.saved import saved_config
from graphs.runs.telling import rules_of
from graphs.runs.view import View

_SCORES = (("heldout_before", "before"), ("heldout_after", "after"), ("heldout", "now"))
SUSPENDED = 130
"""Exit status of a run that can be gone on with."""


def run(arguments: list[str]) -> Work | None:
    """Begin a run, or go on with it where that is wanted and it is there.

    Raises:
        ValueError, LookupError, OSError: what the user can mend.
    """
    program, options = read_program("run", arguments)
    name = options.name or unused(options.folder, program.name)
    if Path(name).name != name:
        raise ValueError(f"expected the name of a folder, got '{name}', in --options.name; choose where with --options.folder")
    path = options.folder / name
    if options.resume == "auto":
        if options.name is None:
            raise ValueError(
                "expected --options.name with --options.resume auto, got none; name the run to go on with, or begin"
            )
        if (path / "config.json").exists():
            return _going_on(path, saved_config(path), program, options)
        if newest(path / "checkpoints") is not None:
            raise LookupError(
                f"expected a run with a config.json beside its commits, got '{path}' without, which may be of other settings; "
                "put it back, or choose another --options.name"
            )
    return executed(program, RunFolder(path, resume=options.resume == "auto" and path.exists()), options)


def resume(arguments: list[str]) -> Work | None:
    """Go on with a run; gives ``None`` where nothing is left to do.

    Raises:
        ValueError, LookupError, OSError: what the user can mend.
    """
    path, *rest = arguments
    saved = saved_config(Path(path))
    check_saves(Path(path), saved)
    program, options = read_again(path, saved, rest)
    return _going_on(Path(path), saved, program, options)


def _going_on(path: Path, saved: dict[str, Any], program: Program, options: SavingOptions) -> Work | None:
    check_saves(path, saved)
    check_program(saved, program)
    folder = RunFolder(path, resume=True)
    try:
        start = find_start(path)
        unsaved = saved["options"]["checkpoint_every"] is None
        if summed_up(path) and (unsaved or (start.progress is not None and start.progress.completed)):
            check_unchanged(start, saved, program)
            folder.close()
            tell(f"{path}: completed, nothing is left to do; summary: {folder.path / 'summary.json'}")
            return None
        plans = prepare(program, folder)
        start = with_changes(start, saved, program, plans, options)
    except BaseException:
        folder.close()
        raise
    where = f"after commit {start.commit.number}" if start.commit is not None else "at its beginning: it has no commit"
    tell(f"going on with {path} {where}")
    if start.changes:
        tell("changed since it was saved:\n" + "\n".join(f"  {change}" for change in start.changes))
    return _work(program, plans, folder, options, start)


def executed(program: Program, folder: RunFolder, options: SavingOptions) -> Work:
    """Prove a program that begins, and give what runs it."""
    plans = prepare(program, folder)
    return _work(program, plans, folder, options, BEGINNING)


def _work(program: Program, plans: Prepared, folder: RunFolder, options: SavingOptions, start: Start) -> Work:
    try:
        rules_of(program, options)
        profile_of(options.profile, program, folder.path, start)
    except ValueError:
        folder.close()
        raise
    warn(program, plans)

    def work() -> None:
        suspended = False
        try:
            summary = asyncio.run(execute(program, plans, folder, View(Console()), options=options, start=start))
            tell(f"summary: {folder.path / 'summary.json'}")
            scores = [f"{summary[key]:.3f} {label}" for key, label in _SCORES if summary.get(key) is not None]
            if scores:
                tell(f"held-out success: {', '.join(scores)}")
            suspended = summary["status"] != "completed"
        except asyncio.CancelledError:
            suspended = True
        except CannotResume:  # nor could the next start
            raise
        except Exception:
            _go_on_with(folder.path, program, options)
            raise
        if suspended:
            _go_on_with(folder.path, program, options)
            raise SystemExit(SUSPENDED)

    return work


def _go_on_with(path: Path, program: Program, options: SavingOptions) -> None:
    """Say how to go on, where that is possible. Without a commit so far it is from the beginning, in the same folder."""
    if options.checkpoint_every is not None and program.made_by is not None:
        here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        tell(f"go on with: headrace resume {here}")


def unused(folder: Path, what: str) -> str:
    """A name made of the time, which nothing in the folder has yet."""
    stamped = f"{what}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    names = itertools.chain([stamped], (f"{stamped}-{number}" for number in itertools.count(2)))
    return next(name for name in names if not (folder / name).exists())

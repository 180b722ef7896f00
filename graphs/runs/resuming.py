"""What a run goes on from, and whether it may with the settings and the graph it has now. Reads; changes nothing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from flow.saving import Difference, differences, newest, outline
from graphs.program import Program
from graphs.runs.changes import Change, of_graph, of_settings, stopping
from graphs.runs.execution import Prepared
from graphs.runs.options import SavingOptions
from graphs.runs.progress import BEGINNING, Start, end_of_line, read_progress


def check_program(saved: dict[str, Any], program: Program) -> None:
    """Refuse to go on with a run of another program.

    Raises:
        ValueError: naming both.
    """
    if saved["made_by"] != program.made_by:
        raise ValueError(
            f"expected the program that the run was begun with, {saved['made_by']}, got {program.made_by}; choose another "
            "--options.name"
        )


def check_saves(run: Path, saved: dict[str, Any]) -> None:
    """Refuse a run that was not saved and is not over, or that nothing can make again.

    Args:
        run: its folder.
        saved: its ``config.json``.

    Raises:
        LookupError: saying which.
    """
    if saved.get("made_by") is None:
        raise LookupError(
            f"expected a run of headrace run, got one of '{saved['program']}', in '{run}'; what code of your own began, or "
            "headrace eval, is begun anew"
        )
    if saved["options"]["checkpoint_every"] is None and not summed_up(run):
        raise LookupError(
            f"expected a run with commits, got one with --options.checkpoint-every none, in '{run}'; begin a new one, with "
            "--options.checkpoint-every 5"
        )


def summed_up(run: Path) -> bool:
    """Whether the summary says that a run is over. It may have been killed, or failed, after its last commit.

    One that a power cut tore says nothing: it is written again.
    """
    file = run / "summary.json"
    try:
        return file.exists() and msgspec.json.decode(file.read_bytes())["status"] == "completed"
    except msgspec.DecodeError:
        return False


def find_start(run: Path) -> Start:
    """The newest whole commit of a run, or its beginning where there is none yet.

    Raises:
        CannotResume: there are commits, and none of them is whole, or it is of something else.
    """
    commit = newest(run / "checkpoints")
    return BEGINNING if commit is None else Start(commit, read_progress(commit))


def with_changes(start: Start, saved: dict[str, Any], program: Program, plans: Prepared, options: SavingOptions) -> Start:
    """What was changed since a run was saved, all of it accepted.

    Args:
        start: what it goes on from.
        saved: its ``config.json``.
        program: as it is now.
        plans: its graphs.
        options: as they are now.

    Raises:
        ValueError: something was changed that the run cannot go on with; all of it is told.
    """
    now = {} if program.config is None else program.config.model_dump(mode="json")
    over = () if start.progress is None else start.progress.over
    found = of_settings(saved["config"] or {}, now, options.accept, over)
    found += _of_phases(start, program)
    if start.in_graph is not None and not stopping(found):
        found += _of_graph(start, plans, found)
    if refused := stopping(found):
        told = "".join(f"\n  {change}" for change in found)
        names = " ".join(change.path for change in refused if change.verdict == "refused")
        accept = f"accept what is refused with --options.accept {names}, " if names else ""
        raise ValueError(
            f"expected what the run was saved with, got other settings:{told}\nleave them as they were, {accept}or begin a new "
            "run"
        )
    kept = [
        Change(f"options.{name}", saved["options"][name], value, "accepted", "how the run is saved")
        for name, value in options.kept().items()
        if saved["options"].get(name, value) != value
    ]
    return replace(start, changes=[*found, *kept])


def check_unchanged(start: Start, saved: dict[str, Any], program: Program) -> None:
    """Refuse other settings for a run that is over: nothing would come of them.

    Raises:
        ValueError: naming them.
    """
    now = {} if program.config is None else program.config.model_dump(mode="json")
    found = [replace(change, verdict="impossible", why="the run is over") for change in of_settings(saved["config"] or {}, now)]
    found += _of_phases(start, program)
    if found:
        told = "".join(f"\n  {change}" for change in found)
        raise ValueError(f"expected the settings of a run that is completed, got others:{told}\nbegin a new run with them")


def _of_phases(start: Start, program: Program) -> Sequence[Change]:
    before = () if start.progress is None else start.progress.phases
    now = tuple(phase.name for phase in program.phases)
    if not before or before == now:
        return ()
    return [Change("phases", " ".join(before), " ".join(now), "impossible", "what was saved is of the phases as they were")]


def _of_graph(start: Start, plans: Prepared, settings: Sequence[Change]) -> Sequence[Change]:
    commit, progress = start.in_graph, start.progress
    assert commit is not None
    assert progress is not None
    plan = plans[start.phase][1]
    found = differences(commit.manifest.graph or {}, outline(plan))
    line = [one for one in found if one.path == f"{plan.spec.name}.{end_of_line(plan)}.steps"]
    return [*of_graph(found, settings), *_of_steps(line, progress.step)]


def _of_steps(found: Sequence[Difference], taken: int) -> Sequence[Change]:
    """Fewer steps than were taken, or as many: the graph would wait for ever, or had ended otherwise."""
    return [
        Change(one.path, one.before, one.now, "impossible", f"{taken} are taken already: let it take more, or begin a new run")
        for one in found
        if one.verdict == "accept" and one.now is not None and one.now <= taken
    ]

"""Running a program: proves every graph first, then has it run, see ``execution``."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flow import BuildError, Plan
from graphs.memory import check_memory, device_budget
from graphs.program import Phase, Program
from graphs.runs.commits import check_saved
from graphs.runs.execution import Execution, Prepared
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.progress import BEGINNING, Start
from graphs.runs.view import View
from stages.agents.tool_agent import ToolAgent
from stages.episodes import check_tasks
from stages.models.pretrained import check_weights


def prepare(program: Program, folder: RunFolder) -> Prepared:
    """Prove a program, see ``prove``, that its weights are there, and that it fits the memory. Writes nothing.

    Raises:
        BuildError, ValueError, FileNotFoundError: it cannot run.
    """
    plans = prove(program, folder.path)
    if program.parts is not None and program.parts.source is not None:
        check_weights(program.parts.source.path)
    check_memory(program, device_budget())
    return plans


def prove(program: Program, folder: Path | None) -> Prepared:
    """Prove every graph and every prompt of a program, and that it can be saved.

    Args:
        program: what is to run.
        folder: of the run; ``None`` where there is to be none.

    Raises:
        BuildError: a graph cannot run, or not be saved. One of the user's own that cannot be saved is warned of.
        ValueError: parts do not fit each other, such as a prompt that is longer than the context.
    """
    plans = [(phase, phase.make(folder).build(quiet=True)) for phase in program.phases]
    check_parts(program)
    return [(_saved(phase, plan, own=program.parts is None), plan) for phase, plan in plans]


def _saved(phase: Phase, plan: Plan, *, own: bool) -> Phase:
    """A phase as it is; one of the user's own that cannot be saved starts over when it is gone on with."""
    if phase.starts_over:
        return phase
    try:
        check_saved(plan)
    except BuildError as error:
        if not own:
            raise
        told = "; ".join(f"{fault.path}: {fault.got}; {fault.remedy}" for fault in error.faults)
        warning = f"a run of graph '{plan.spec.name}' starts over where it is resumed, since it cannot be saved: {told}"
        return replace(phase, starts_over=True, warnings=(*phase.warnings, warning))
    return phase


def check_parts(program: Program) -> None:
    """Refuse parts that do not fit each other.

    Raises:
        ValueError: naming what does not.
    """
    parts = program.parts
    if parts is not None and parts.chat.vocab_size > parts.model.config.vocab_size:
        raise ValueError(
            f"expected a model with a token for each of the {parts.chat.vocab_size} of its chat format, got "
            f"model.vocab_size={parts.model.config.vocab_size}; raise it"
        )
    for phase in program.phases:
        phase.check()
    if parts is not None:
        if isinstance(parts.agent, ToolAgent):
            parts.agent.shown(parts.tools)
        for tasks in (parts.train, parts.heldout):
            check_tasks(tasks, parts.chat, parts.tools, parts.engine.context_length, opening=parts.opening)


async def execute(
    program: Program,
    plans: Prepared,
    folder: RunFolder,
    view: View,
    *,
    options: SavingOptions | None = None,
    start: Start = BEGINNING,
) -> Mapping[str, Any]:
    """Run a prepared program to its end.

    Args:
        program: what is run.
        plans: of ``prepare``.
        folder: of the run.
        view: shows it.
        options: how it is saved and stopped; ``None`` for the defaults.
        start: what it goes on from.

    Returns:
        What ``summary.json`` holds; also where the run was suspended.

    Raises:
        CannotResume: the run cannot go on from there; nothing but its lock was touched.
        FlowError: a run failed, or its settings stopped it; the summary is written and says so.
        Interrupted: interrupted a second time; the summary is written and says so.
        CancelledError: interrupted before a graph ran; the same.
    """
    with folder:
        return await Execution(program, folder, view, options or SavingOptions(), start).run(plans)

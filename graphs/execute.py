"""Running a program: proves every graph first, then opens the engine, runs the phases and writes the summary.

What interrupts do is in ``interrupts``.
"""

import asyncio
import contextlib
import gc
import resource
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flow import Plan, Run
from flow.trace import LoopLag, PerfettoWriter
from graphs.interrupts import interruptible
from graphs.memory import check_memory, device_budget
from graphs.program import Phase, Program
from graphs.run_folder import RunFolder
from graphs.summary import of_phase
from graphs.versions import versions
from graphs.view import View
from stages.agents.tool_agent import ToolAgent
from stages.episodes import check_tasks
from stages.tools.run import tools_of_run
from stages.train.stop import stop_in

Prepared = Sequence[tuple[Phase, Plan]]


def prepare(program: Program, folder: RunFolder) -> Prepared:
    """Prove every graph and every prompt of a program. Writes nothing.

    Raises:
        BuildError: a graph cannot run.
        ValueError: parts do not fit each other, such as a prompt that is longer than the context, or the device's memory.
    """
    plans = [(phase, phase.make(folder.path).build(quiet=True)) for phase in program.phases]
    check_parts(program)
    check_memory(program, device_budget())
    return plans


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


async def execute(program: Program, plans: Prepared, folder: RunFolder, view: View) -> Mapping[str, Any]:
    """Run a prepared program to its end.

    Returns:
        What ``summary.json`` holds; also where the run was suspended.

    Raises:
        FlowError: a run failed, or its settings stopped it; the summary is written and says so.
        Interrupted: interrupted a second time; the summary is written and says so.
        CancelledError: interrupted before a graph ran; the same.
    """
    began = time.monotonic()
    summary: dict[str, Any] = {"graph": program.name, "status": "failed", "steps": 0}
    with folder:
        folder.write("config.json", {"program": program.name, "config": _config(program)})
        try:
            status = await _Execution(program, folder, view, summary).run(plans)
            summary["status"] = status
        except asyncio.CancelledError:
            summary["status"] = "suspended"
            raise
        except BaseException as error:
            stop = stop_in(error)
            if stop is not None:
                summary["status"] = "stopped"
            told = stop or error
            summary["error"] = f"{type(told).__name__}: {told}"
            raise
        finally:
            wall_s = time.monotonic() - began
            summary |= {"wall_s": wall_s, "setup_s": wall_s - summary.pop("at_work_s", 0.0), "peak_rss_mb": _peak_rss_mb()}
            _write_summary(folder, summary)
    return summary


class _Execution:
    """One program on its way."""

    def __init__(self, program: Program, folder: RunFolder, view: View, summary: dict[str, Any]) -> None:
        self._program, self._folder, self._view, self._summary = program, folder, view, summary
        self._run: Run | None = None

    async def run(self, plans: Prepared) -> str:
        """Run all phases, or up to the one that was suspended; gives the status."""
        with interruptible(lambda: self._run):
            async with contextlib.AsyncExitStack() as stack:
                recorder = stack.enter_context(PerfettoWriter(self._folder.path / "run.pftrace"))
                await self._open(stack, recorder)
                self._summary["versions"] = versions(self._program)
                for phase, plan in plans:
                    status = await self._phase(phase, plan, recorder, main=phase.main or len(plans) == 1)
                    if status != "completed":
                        return status
        return "completed"

    async def _open(self, stack: contextlib.AsyncExitStack, recorder: PerfettoWriter) -> None:
        parts = self._program.parts
        if parts is not None:
            parts.trace.attach(recorder)
            with self._view.opening("loading the model"):
                parts.load()
            with self._view.opening("compiling the engine"):
                await stack.enter_async_context(parts.engine)
        # Programs compiled by now live as long as the process. Looking through them again and again would stop the loop for
        # about 0.1 s each time.
        gc.collect()
        gc.freeze()

    async def _phase(self, phase: Phase, plan: Plan, recorder: PerfettoWriter, *, main: bool) -> str:
        lag = LoopLag()
        run = Run(plan, recorder=recorder, watchers=(self._folder, self._view), lag=lag, tally=self._folder.outcomes)
        self._folder.begin(phase.name)
        await phase.prepare()
        self._run = run
        try:
            with self._view.showing(phase, run), tools_of_run(self._folder.path, phase.name):
                outcome = await run.finish()
        finally:
            self._run = None
            so_far = run.summary()
            self._summary["at_work_s"] = self._summary.get("at_work_s", 0.0) + so_far.seconds
            spent = {"name": phase.name, "status": so_far.status, "seconds": so_far.seconds}
            self._summary.setdefault("phases", []).append(spent)
            if main:
                self._summary |= of_phase(self._program, so_far, self._folder, lag) | phase.report()
        if outcome.status == "completed":
            self._summary |= phase.result()
        self._view.finished(phase, outcome, self._summary)
        return str(outcome.status)


def _write_summary(folder: RunFolder, summary: Mapping[str, Any]) -> None:
    """Write it; a full disk must not hide what the run itself died of."""
    try:
        folder.write("summary.json", summary)
    except OSError as error:
        if "error" not in summary:
            raise
        raise OSError(f"{summary['error']}; and the summary could not be written: {error}") from error


def _peak_rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _config(program: Program) -> Any:
    return None if program.config is None else program.config.model_dump(mode="json")

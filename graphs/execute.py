"""Running a program: proves every graph first, then opens the engine, runs the phases and writes the summary.

The first interrupt suspends the graph under way; the second ends the program where it stands.
"""

import asyncio
import contextlib
import resource
import signal
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from flow import LoopLag, Plan, Run, Summary
from flow.trace import PerfettoWriter
from graphs.program import Phase, Program
from graphs.run_folder import RunFolder
from graphs.versions import versions
from graphs.view import View
from stages.episodes import check_tasks

Prepared = Sequence[tuple[Phase, Plan]]


def prepare(program: Program, folder: RunFolder) -> Prepared:
    """Prove every graph and every prompt of a program. Writes nothing.

    Raises:
        BuildError: a graph cannot run.
        PromptError: a task's prompt does not fit.
    """
    plans = [(phase, phase.make(folder.path).build()) for phase in program.phases]
    check_prompts(program)
    return plans


async def execute(program: Program, plans: Prepared, folder: RunFolder, view: View) -> Mapping[str, Any]:
    """Run a prepared program to its end.

    Returns:
        What ``summary.json`` holds; also where the run was suspended.

    Raises:
        FlowError: a run failed; the summary is written and says so.
    """
    began = time.monotonic()
    summary: dict[str, Any] = {"graph": program.name, "status": "failed"}
    with folder:
        folder.write("config.json", {"program": program.name, "config": _config(program)})
        try:
            await _run_phases(program, plans, folder, view, summary, began)
        except BaseException as error:
            summary["error"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            summary["wall_s"] = time.monotonic() - began
            summary["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            folder.write("summary.json", summary)
    return summary


def check_prompts(program: Program) -> None:
    """Refuse tasks whose prompt the engine could not take.

    Raises:
        PromptError: naming them.
    """
    parts = program.parts
    if parts is not None:
        for tasks in (parts.train, parts.heldout):
            check_tasks(tasks, parts.chat, parts.tools, parts.engine.context_length)


async def _run_phases(
    program: Program,
    plans: Prepared,
    folder: RunFolder,
    view: View,
    summary: dict[str, Any],
    began: float,
) -> None:
    at_work_s = 0.0
    async with contextlib.AsyncExitStack() as stack:
        recorder = stack.enter_context(PerfettoWriter(folder.path / "run.pftrace"))
        if program.parts is not None:
            program.parts.trace.attach(recorder)
            with view.opening("loading the model"):
                program.parts.load()
            with view.opening("compiling the engine"):
                await stack.enter_async_context(program.parts.engine)
        summary["versions"] = versions(program)
        for phase, plan in plans:
            lag = LoopLag()
            run = Run(plan, recorder=recorder, watchers=(folder, view), lag=lag)
            folder.begin(phase.name)
            await phase.prepare()
            with _interruptible(run), view.showing(phase, run):
                outcome = await run.finish()
            at_work_s += outcome.seconds
            summary |= phase.result() if outcome.status == "completed" else {}
            if phase.main or len(plans) == 1:
                summary |= _of_phase(program, phase, outcome, folder, lag)
            summary["status"] = outcome.status
            view.finished(phase, outcome, summary)
            if outcome.status != "completed":
                break
    summary["setup_s"] = time.monotonic() - began - at_work_s


def _of_phase(program: Program, phase: Phase, outcome: Summary, folder: RunFolder, lag: LoopLag) -> dict[str, Any]:
    """What the summary says of the main phase."""
    rows = folder.steps
    trained = sum(row.get("trained_tokens") or 0 for row in rows)
    lags = [row["lag_mean"] for row in rows if row.get("lag_mean") is not None]
    return {
        "steps": len(rows),
        "train_s": outcome.seconds,
        "episodes": dict(folder.episodes),
        "sampled_tokens": folder.num_sampled,
        "trained_tokens": trained,
        "goodput": trained / folder.num_sampled if folder.num_sampled else None,
        "lag_mean": sum(lags) / len(lags) if lags else None,
        "lag_max": max((row["lag_max"] for row in rows if row.get("lag_max") is not None), default=None),
        "max_lag": program.max_lag,
        "ledger_balanced": outcome.balanced,
        "loop_lag_max_ms": lag.max_ms,
        "loop_lag_p99_ms": lag.quantile_ms(0.99),
        "seed": getattr(program.config, "seed", None),
        "stages": {
            name: {
                "taken": node.taken,
                "emitted": node.emitted,
                "dropped": node.dropped,
                "lost": node.lost,
                "retried": node.retried,
                "high_water": node.high_water,
                **{f"{_STATES[state]}_share": share for state, share in node.shares.items()},
            }
            for name, node in outcome.nodes.items()
        },
    }


_STATES = {"input": "input_wait", "ticket": "ticket_wait", "pool": "pool_wait", "work": "work", "output": "output_wait"}


def _config(program: Program) -> Any:
    return None if program.config is None else program.config.model_dump(mode="json")


@contextlib.contextmanager
def _interruptible(run: Run) -> Generator[None]:
    """First interrupt: suspend. Second: cancel."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    count = 0

    def interrupt() -> None:
        nonlocal count
        count += 1
        if count == 1:
            run.suspend()
        elif main is not None:
            main.cancel()

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)

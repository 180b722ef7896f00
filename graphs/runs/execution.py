"""One program on its way: opens the engine, runs the phases, says how far it is, and writes the summary.

What interrupts do is in ``interrupts``, what commits hold in ``commits``, how far a program has come in ``progress``.
"""

import asyncio
import contextlib
import gc
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import msgspec
from flax import nnx

from flow import Plan, Run
from flow.saving import CannotResume
from flow.trace import LoopLag, PerfettoWriter, recording, trace_file
from graphs.program import Phase, Program
from graphs.report.page import write_report
from graphs.runs.changes import HASHED, of_versions, stopping
from graphs.runs.commits import ProgramCommits, load_begun
from graphs.runs.device_memory import counted_memory
from graphs.runs.folder import RunFolder, Sizes
from graphs.runs.health import EngineCounts, Health
from graphs.runs.interrupts import interruptible
from graphs.runs.json_rows import encode
from graphs.runs.options import SavingOptions
from graphs.runs.profiled import profile_of, profiled_phase
from graphs.runs.progress import Progress, Spent, Start, steps_done
from graphs.runs.summary import of_phase
from graphs.runs.telling import Telling
from graphs.runs.versions import versions
from graphs.runs.view import View
from stages.compilations import Compilations
from stages.models.transformer import Transformer
from stages.profile import Profile, profiling
from stages.records import Weights
from stages.tools.run import tools_of_run
from stages.train.stop import stop_in

Prepared = Sequence[tuple[Phase, Plan]]
_QUICKLY_READ = 10_000_000
"""Bytes of a trace that is read for the report at the end of a run: some three seconds."""
_OF_ONE_START = ("status", "error", "versions")
"""What a summary says of one start of a run, and no commit keeps."""


class Execution:
    """One program on its way.

    Args:
        program: what is run.
        folder: of the run; open.
        view: shows it.
        options: how it is saved and stopped.
        start: what it goes on from.
    """

    def __init__(self, program: Program, folder: RunFolder, view: View, options: SavingOptions, start: Start) -> None:
        self._program, self._folder, self._view, self._options, self._start = program, folder, view, options, start
        self._names = tuple(phase.name for phase in program.phases)
        self._began = time.monotonic()
        self._summary: dict[str, Any] = {"graph": program.name, "status": "failed", "steps": 0}
        self._summary |= {} if start.progress is None else start.progress.summary
        self._over = dict(self._summary)
        self._number, self._before = start.phase, start.spent
        self._versions: dict[str, Any] = {}
        self._run: Run | None = None
        self._commits: ProgramCommits | None = None
        self._lag = LoopLag()
        self._profile: Profile | None = None
        self._telling = Telling(program, folder, options)
        folder.listen(view.hear)

    async def run(self, plans: Prepared) -> Mapping[str, Any]:
        """Run all phases that are left, or up to one that is suspended; gives the summary. Raises what ``execute`` does."""
        begun = self._start.progress is None
        if begun:
            self._begin()
        try:
            with interruptible(lambda: self._run, self._options.grace_s):
                await self._load()
                if not begun:
                    self._begin()
                begun = True
                self._summary["status"] = await self._phases(plans)
        except asyncio.CancelledError:
            self._summary["status"] = "suspended"
            raise
        except BaseException as error:
            stop = stop_in(error)
            if stop is not None:
                self._summary["status"] = "stopped"
            told = stop or error
            self._summary["error"] = f"{type(told).__name__}: {told}"
            raise
        finally:
            if begun:
                self._end()
        return self._summary

    # --- beginning and end ---

    async def _load(self) -> None:
        """Load the model; refuse to go on with another one, and give it what the phase under way began with."""
        parts, commit, progress = self._program.parts, self._start.commit, self._start.progress
        if parts is not None:
            with self._view.opening("loading the model"):
                parts.load()
        self._versions = versions(self._program)
        if commit is None or progress is None:
            return
        changes = of_versions(progress.versions, self._versions)
        if changes:
            self._view.say("not as where it was saved:\n" + "\n".join(f"  {change}" for change in changes))
        if stopping(changes):
            raise CannotResume(
                f"expected what {commit.folder} was made with, got another {', '.join(c.path for c in stopping(changes))}; "
                "go on with the model, tokenizer and chat template as they were, or begin a new run"
            )
        if parts is not None:
            with commit.reading():
                load_begun(parts.model, commit)

    def _begin(self) -> None:
        """Note this start of the run, and take back what was written after the commit it goes on from."""
        commit, progress = self._start.commit, self._start.progress
        attempt = self._folder.begin_attempt(
            commit=None if commit is None else commit.number, changes=[str(change) for change in self._start.changes]
        )
        program = self._program
        config = None if program.config is None else program.config.model_dump(mode="json")
        told = {"program": program.name, "made_by": program.made_by, "config": config, "options": self._options.kept()}
        self._folder.write("config.json", told)
        if attempt == 0:
            return
        missing = self._folder.cut_back(Sizes(0, 0) if progress is None else progress.sizes)
        if missing:
            self._view.say(f"warning: {missing} bytes of rows that {self._folder.path} had at its commit are not there now")

    def _end(self) -> None:
        """Write the summary; a full disk must not hide what the run itself died of."""
        summary, spent = self._summary, self._spent()
        summary |= {"attempts": self._folder.attempt + 1, "wall_s": spent.wall_s, "setup_s": spent.wall_s - spent.at_work_s}
        summary["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        try:
            self._folder.write("summary.json", summary)
        except OSError as error:
            if "error" not in summary:
                raise
            raise OSError(f"{summary['error']}; and the summary could not be written: {error}") from error
        finally:
            self._telling.close(summary)
        self._report()

    def _report(self) -> None:
        """Write the report. What it is made of is on disk, so nothing is lost where that fails: it may be written again."""
        try:
            self._folder.finish()
            # Who stopped it is not kept waiting by a verdict.
            write_report(self._folder.path, _QUICKLY_READ if self._summary["status"] == "completed" else 0)
        except Exception as error:
            self._view.say(
                f"warning: the report could not be written: {error!r}; headrace report {self._folder.path} tries again"
            )

    # --- phases ---

    async def _phases(self, plans: Prepared) -> str:
        """Run what is left; gives the status."""
        async with contextlib.AsyncExitStack() as stack:
            self._telling.open()
            recorder = self._recording(stack)
            commits = self._commits = ProgramCommits(
                self._folder, self._options, self._start, self.progress, self._not_written, self._settings()
            )  # fmt: skip
            stack.enter_context(commits)
            stack.enter_context(recording(recorder))
            if recorder is not None:
                stack.enter_context(Compilations(recorder))
            self._profile = profile_of(self._options.profile, self._program, self._folder.path, self._start)
            stack.enter_context(profiling(self._profile))
            if recorder is not None:
                await stack.enter_async_context(counted_memory(recorder, jax.local_devices()))
            await self._open(stack)
            self._summary["versions"] = self._versions
            for phase, plan in plans[self._number :]:
                status = await self._phase(phase, plan, recorder, commits)
                if status != "completed":
                    return status
                self._number += 1
                self._before = msgspec.structs.replace(self._before, phase_s=0.0, lag_max_ms=0.0)
                self._over = {name: value for name, value in self._summary.items() if name not in _OF_ONE_START}
                await commits.between(self._trained, same=phase.training is None)
        return "completed"

    def _recording(self, stack: contextlib.AsyncExitStack) -> PerfettoWriter | None:
        """Open the trace, where one is wanted."""
        path, max_bytes = trace_file(self._folder.path, self._folder.attempt), self._options.trace_bytes
        return None if max_bytes is None else stack.enter_context(PerfettoWriter(path, max_bytes=max_bytes))

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        parts, progress = self._program.parts, self._start.progress
        if parts is not None:
            self._folder.sample(parts.samples, self._options.samples, parts.chat.decode)
            with self._view.opening("compiling the engine"):
                await stack.enter_async_context(parts.engine)
            if progress is not None and progress.engine_version:
                await parts.engine.load(Weights(nnx.state(parts.model, nnx.Param)), progress.engine_version)
        # Programs compiled by now live as long as the process. Looking through them again and again would stop the loop for
        # about 0.1 s each time.
        gc.collect()
        gc.freeze()

    async def _phase(self, phase: Phase, plan: Plan, recorder: PerfettoWriter | None, commits: ProgramCommits) -> str:
        saving = commits.saving(self._number, phase, self._trained)
        lag = self._lag = LoopLag()
        health = Health(
            self._folder, self._options.health_s, lambda: self._spent().wall_s, self._engine(), lag, self._telling.dropped
        )  # fmt: skip
        watchers = (self._folder, health, self._telling)
        run = Run(plan, recorder=recorder, watchers=watchers, lag=lag, tally=self._folder.outcomes, saving=saving)
        self._folder.begin(phase.name, phase.total)
        await phase.prepare()
        if self._profile is not None:
            self._profile.armed = phase is profiled_phase(self._program)
        self._run = run
        after = self._start.progress.step if saving is not None and saving.resume and self._start.progress else 0
        try:
            with (
                self._view.showing(phase, run, self._folder, after),
                tools_of_run(self._folder.path, phase.name, self._folder.attempt),
                self._telling.of(run),
                health.measuring(run),
            ):
                outcome = await run.finish()
        finally:
            spent = self._spent()
            self._run, self._before = None, msgspec.structs.replace(spent, wall_s=self._before.wall_s)
            so_far = run.summary()
            told = {"name": phase.name, "status": so_far.status, "seconds": spent.phase_s}
            self._summary["phases"] = [*self._summary.get("phases", ()), told]
            if phase.main or len(self._names) == 1:
                self._summary |= of_phase(self._program, so_far, self._folder, spent, lag) | phase.report()
        if outcome.status == "completed":
            self._summary |= msgspec.to_builtins(phase.result(), str_keys=True)
        self._view.finished(phase, outcome, self._summary)
        return str(outcome.status)

    def _engine(self) -> Callable[[], EngineCounts] | None:
        """Counts of the engine, for whoever asks again and again; ``None`` where there is none."""
        if self._program.parts is None:
            return None
        engine = self._program.parts.engine

        def counts() -> EngineCounts:
            told = engine.statistics()
            return EngineCounts(told.sampled_tokens, told.busy_slot_steps, told.steps * engine.config.slots, told.waiting)

        return counts

    # --- how far it is ---

    @property
    def _trained(self) -> Transformer | None:
        """The model, where a phase that is over has trained it."""
        trained = any(phase.training is not None for phase in self._program.phases[: self._number])
        return self._program.parts.model if trained and self._program.parts is not None else None

    def _settings(self) -> bytes:
        """All that decides what the program makes, as bytes to compare."""
        config = None if self._program.config is None else self._program.config.model_dump(mode="json")
        return encode([config, {name: self._versions.get(name) for name in HASHED}])

    def _spent(self) -> Spent:
        before, seconds = self._before, 0.0 if self._run is None else self._run.summary().seconds
        return Spent(
            wall_s=self._start.spent.wall_s + time.monotonic() - self._began,
            at_work_s=before.at_work_s + seconds,
            phase_s=before.phase_s + seconds,
            lag_max_ms=max(before.lag_max_ms, self._lag.max_ms),
        )

    def progress(self) -> Progress:
        """How far the program has come."""
        parts = self._program.parts
        return Progress(
            attempt=self._folder.attempt,
            phase=self._number,
            phases=self._names,
            step=0 if self._run is None else steps_done(self._run),
            summary=msgspec.json.decode(encode(self._over)),
            spent=self._spent(),
            sizes=self._folder.sizes(),
            engine_version=None if parts is None else parts.engine.statistics().version,
            versions=self._versions,
            begun=None if self._commits is None else self._commits.begun,
        )

    def _not_written(self, what: str, error: Exception) -> None:
        self._folder.tell("commits", {"warning": f"{what}, and the run goes on: {error}"})

"""``headrace replay``: what a run trained, trained again from its records, and compared with the run step by step.

The environments are not asked and the engine is not opened. Phases before the one that was recorded make what it began with:
supervised training is the same whenever it is run. What ``headrace replay-batch`` does is another thing, see ``replay_batch``.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from flow import Run
from flow.saving import CannotResume, Commit, RecordedStep, RecordedSteps, complete, read_state
from graphs.compared import Compared, rows_of
from graphs.dumped import dump_step
from graphs.parts import Parts
from graphs.program import Phase, Program
from graphs.program_commits import load_begun
from graphs.progress import read_progress
from graphs.replayed_run import write_run
from graphs.retraining import retraining, scored_by, trainer_again
from graphs.rl_config import RlConfig
from stages.arrays import ARRAYS
from stages.train.gated import Gated
from stages.train.metrics import StepRow
from stages.train.retraced import Retraced

Say = Callable[[str], None]


@dataclass(frozen=True)
class ReplayOptions:
    """How much of a run is trained again, and what is left of it."""

    to_step: int | None = None
    """Stop after this step, and leave the weights as a run of their own; None goes on to the last step that was recorded."""
    from_commit: Annotated[int | None, tyro.conf.arg(name="from")] = None
    """Number of the commit to begin with, of those in RUN/checkpoints; None begins with what the run began with."""
    dump_batch: int | Literal["last"] | None = None
    """Step whose packed batch is written, as arrays and as text; None writes none."""
    out: Path | None = None
    """Folder for weights and batch; None takes ``replays`` in the run's folder."""


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        program: of the run, made again.
        number: of the phase that was recorded, from 0.
        config: of that phase.
        recorded: what the run recorded of it.
        steps: to be trained again.
        commit: to begin with; ``None`` begins with the phase.
        options: of the command.
        run: its folder.
    """

    program: Program
    number: int
    config: RlConfig
    recorded: RecordedSteps
    steps: Sequence[RecordedStep]
    commit: Commit | None
    options: ReplayOptions
    run: Path

    @property
    def parts(self) -> Parts:
        """Of the program."""
        assert self.program.parts is not None, "a phase that is recorded has parts"
        return self.program.parts

    @property
    def phase(self) -> Phase:
        """That was recorded."""
        return self.program.phases[self.number]

    @property
    def out(self) -> Path:
        """Folder for what is left of it."""
        return self.options.out or self.run / "replays"


def prepare_replay(run: Path, program: Program, options: ReplayOptions) -> Plan:
    """Find what is to be trained again.

    Args:
        run: its folder.
        program: of the run, made again.
        options: of the command.

    Raises:
        LookupError: the run recorded nothing, or not these steps; or there is no such commit.
        FileExistsError: what would be written is there.
    """
    number = next((at for at, phase in enumerate(program.phases) if phase.recorded is not None), None)
    if number is None or program.parts is None:
        raise LookupError(
            f"expected a run with reinforcement learning, got one of {program.name}, in '{run}'; a run without it is the same "
            "when it is run again"
        )
    config = program.phases[number].recorded
    assert config is not None
    commit = _commit(run, program.phases[number].name, options.from_commit)
    recorded = RecordedSteps(run / "journal", "rl", scored_by(config, program.parts), "trainer")
    first = 1 if commit is None else read_progress(commit).step + 1
    steps = _chosen(run, recorded, first, options)
    plan = Plan(program, number, config, recorded, steps, commit, options, run)
    for path in (_weights(plan), _batch(plan)):
        if path is not None and path.exists():
            raise FileExistsError(
                f"expected nothing to be there yet, got '{path}'; remove it, or choose another place with --out"
            )
    return plan


def replay(plan: Plan, say: Say) -> bool:
    """Train again; gives whether every step came out as in the run.

    Args:
        plan: from ``prepare_replay``.
        say: told a line for each step.
    """
    return asyncio.run(_replayed(plan, say))


async def _replayed(plan: Plan, say: Say) -> bool:
    rows = rows_of(plan.run)
    plan.parts.load()
    begun = await _begin(plan, rows, say)
    compared = Compared(plan.phase.name, rows)
    digests = {step.number: step.digest for step in plan.steps}

    def see(row: StepRow, digest: str) -> None:
        say(compared.step(row, (digests[int(row["step"] or 0)], digest)))

    trainer = trainer_again(plan.config, plan.parts)
    after = None if plan.commit is None else _after(plan.commit, trainer)
    learner = Retraced(trainer, see, keep=_kept(plan), after=after)
    await Run(retraining(plan.config, plan.recorded, plan.steps, learner).build(quiet=True), stall_s=None).finish()
    say(compared.report())
    if (folder := _batch(plan)) is not None:
        dump_step(folder, learner.kept, plan.config, plan.parts.chat)
        say(f"batch of step {_kept(plan)}: {folder}")
    if (folder := _weights(plan)) is not None:
        write_run(folder, plan.run, plan.parts.model)
        say(f"weights after step {plan.steps[-1].number}: {folder}; headrace eval, chat and export take it as a run")
    return begun and compared.equal


async def _begin(plan: Plan, rows: Mapping[tuple[str, int], Mapping[str, Any]], say: Say) -> bool:
    """Have the model as the phase began with it; gives whether what was done for that came out as in the run."""
    there = complete(plan.run / "checkpoints")
    commit = plan.commit or next((each for each in there if _phase_of(each) == plan.phase.name), None)
    if commit is not None:
        with commit.reading():
            load_begun(plan.parts.model, commit)
        return True
    equal = True
    for phase in plan.program.phases[: plan.number]:
        if phase.training is not None:
            compared = Compared(phase.name, rows)
            await Run(phase.make(None).build(quiet=True), watchers=(_Steps(compared, say),), stall_s=None).finish()
            say(compared.report())
            equal = equal and compared.num_different == 0
    return equal


class _Steps:
    """Watches the steps of a phase that is run again."""

    def __init__(self, compared: Compared, say: Say) -> None:
        self._compared, self._say = compared, say

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Nothing is compared of what comes before a step."""

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Compare a step; told of where it differs."""
        if node == "trainer":
            before, line = self._compared.num_different, self._compared.step(dict(row))
            if self._compared.num_different > before:
                self._say(line)


def _after(commit: Commit, trainer: Gated) -> tuple[Path, Any]:
    folder = commit.saved("trainer")
    assert folder is not None, "a commit of a phase that trains has what its trainer saved"
    return folder, read_state(commit, "trainer", trainer, ARRAYS)


def _commit(run: Path, phase: str, wanted: int | None) -> Commit | None:
    if wanted is None:
        return None
    there = {commit.number: commit for commit in complete(run / "checkpoints") if _phase_of(commit) == phase}
    graphs = {each: commit for each, commit in there.items() if commit.manifest.graph is not None}
    if wanted not in graphs:
        raise LookupError(
            f"expected one of the commits {', '.join(map(str, graphs)) or '(there are none)'} of the recorded phase, "
            f"got {wanted}, in --from; leave it out to begin with the phase"
        )
    return graphs[wanted]


def _phase_of(commit: Commit) -> str | None:
    """Name of the phase that is under way, or about to begin; ``None`` behind the last, and in a commit of something else."""
    try:
        progress = read_progress(commit)
    except CannotResume:
        return None
    return None if progress.completed else progress.phases[progress.phase]


def _chosen(run: Path, recorded: RecordedSteps, first: int, options: ReplayOptions) -> list[RecordedStep]:
    if not recorded.steps:
        raise LookupError(
            f"expected the steps of the run in '{run / 'journal'}', got none; only a run that was begun with --options.record "
            "can be replayed. One with max_lag=0 comes out the same when it is run again"
        )
    there = {step.number: step for step in recorded.steps}
    latest = max(there)
    last = latest if options.to_step is None else options.to_step
    dumped = last if options.dump_batch in (None, "last") else int(options.dump_batch)
    for name, step, most in (("from", first, latest), ("to-step", last, latest), ("dump-batch", dumped, last)):
        if not first <= step <= most:
            raise LookupError(f"expected a step from {first} to {most}, got {step}, in --{name}; choose one of these")
    wanted = range(first, last + 1)
    missing = [number for number in wanted if number not in there]
    if missing:
        raise LookupError(
            f"expected all steps from {first} to {last} in '{run / 'journal'}', got none of {missing[0]}; the journal "
            "could not be written then. Begin behind it, with --from and a commit"
        )
    return [there[number] for number in wanted]


def _kept(plan: Plan) -> int | None:
    wanted = plan.options.dump_batch
    return plan.steps[-1].number if wanted == "last" else wanted


def _batch(plan: Plan) -> Path | None:
    kept = _kept(plan)
    return None if kept is None else plan.out / f"batch-{kept:06}"


def _weights(plan: Plan) -> Path | None:
    return None if plan.options.to_step is None else plan.out / f"step-{plan.steps[-1].number:06}"

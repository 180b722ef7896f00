"""What a replay is to do: which steps of which run, from where, and what is to be left of it. Reads; trains nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from flow.saving import CannotResume, Commit, RecordedStep, RecordedSteps, complete
from graphs.parts import Parts
from graphs.program import Phase, Program
from graphs.replays.retraining import scored_by
from graphs.rl_config import RlConfig
from graphs.runs.progress import read_progress


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
        dumped: number of the step whose batch is written; ``None`` writes none.
        batch: folder for it.
        weights: folder for the weights in the end; ``None`` leaves none.
        run: its folder.
    """

    program: Program
    number: int
    config: RlConfig
    recorded: RecordedSteps
    steps: Sequence[RecordedStep]
    commit: Commit | None
    dumped: int | None
    batch: Path
    weights: Path | None
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
    number, config = _recorded_phase(run, program)
    assert program.parts is not None, "a phase that is recorded has parts"
    commit = _commit(run, program.phases[number].name, options.from_commit)
    recorded = RecordedSteps(run / "journal", "rl", scored_by(config, program.parts), "trainer")
    steps = _chosen(run, recorded, 1 if commit is None else read_progress(commit).step + 1, options)
    last, out = steps[-1].number, options.out or run / "replays"
    dumped = last if options.dump_batch == "last" else options.dump_batch
    batch, weights = out / f"batch-{dumped or 0:06}", None if options.to_step is None else out / f"step-{last:06}"
    for path in (weights, None if dumped is None else batch):
        if path is not None and path.exists():
            raise FileExistsError(
                f"expected nothing to be there yet, got '{path}'; remove it, or choose another place with --out"
            )
    return Plan(program, number, config, recorded, steps, commit, dumped, batch, weights, run)


def phase_of(commit: Commit) -> str | None:
    """Name of the phase that is under way, or about to begin; ``None`` behind the last, and in a commit of something else."""
    try:
        progress = read_progress(commit)
    except CannotResume:
        return None
    return None if progress.completed else progress.phases[progress.phase]


def _recorded_phase(run: Path, program: Program) -> tuple[int, RlConfig]:
    found = [(at, phase.recorded) for at, phase in enumerate(program.phases) if phase.recorded is not None]
    if len(found) != 1:
        raise LookupError(
            f"expected a run with one phase of reinforcement learning, got {len(found) or 'none'}, in '{run}'; "
            "supervised training comes out the same when it is run again, and of several phases the records do not tell which"
        )
    return found[0]


def _commit(run: Path, phase: str, wanted: int | None) -> Commit | None:
    if wanted is None:
        return None
    there = complete(run / "checkpoints")
    found = {each.number: each for each in there if each.manifest.graph is not None and phase_of(each) == phase}
    if wanted not in found:
        raise LookupError(
            f"expected one of the commits {', '.join(map(str, found)) or '(there are none)'} of the recorded phase, "
            f"got {wanted}, in --from; leave it out to begin with the phase"
        )
    return found[wanted]


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
    missing = [number for number in range(first, last + 1) if number not in there]
    if missing:
        raise LookupError(
            f"expected all steps from {first} to {last} in '{run / 'journal'}', got none of {missing[0]}; the journal "
            "could not be written then. Begin behind it, with --from and a commit"
        )
    return [there[number] for number in range(first, last + 1)]

"""``headrace replay``: what a run trained, trained again from its records, and compared with the run step by step.

The environments are not asked and the engine is not opened. Phases before the one that was recorded make what it began with:
supervised training is the same whenever it is run. What is to be done is in ``graphs.replays.plan``; ``headrace
replay-batch`` does something else, see ``replay_batch``.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flow import Run
from flow.saving import Commit, complete, read_state
from graphs.replays.compared import Compared, rows_of
from graphs.replays.dumped import dump_step
from graphs.replays.plan import Plan, phase_of
from graphs.replays.replayed_run import write_run
from graphs.replays.retraining import retraining, trainer_again
from graphs.runs.changes import Change, of_versions
from graphs.runs.commits import load_begun
from graphs.runs.versions import versions
from stages.arrays import ARRAYS
from stages.train.gated import Gated, GatedState
from stages.train.metrics import StepRow
from stages.train.retraced import Retraced

Say = Callable[[str], None]
Rows = Mapping[tuple[str, int], Mapping[str, Any]]


def replay(plan: Plan, say: Say) -> bool:
    """Train again; gives whether every step came out as in the run.

    Args:
        plan: what is to be done.
        say: told a line for each step.
    """
    with contextlib.nullcontext() if plan.commit is None else plan.commit.reading():
        return asyncio.run(_replayed(plan, say))


async def _replayed(plan: Plan, say: Say) -> bool:
    rows = rows_of(plan.run)
    plan.parts.load()
    for change in _changes(plan):
        say(f"  {change}")
    begun = await _begin(plan, rows, say)
    compared = Compared(plan.phase.name, rows)
    digests = {step.number: step.digest for step in plan.steps}

    def see(row: StepRow, digest: str) -> None:
        say(compared.step(row, (digests[int(row["step"] or 0)], digest)))

    trainer = trainer_again(plan.config, plan.parts)
    learner = Retraced(trainer, see, keep=plan.dumped, after=None if plan.commit is None else _after(plan.commit, trainer))
    await Run(retraining(plan.config, plan.recorded, plan.steps, learner).build(quiet=True), stall_s=None).finish()
    say(compared.report())
    if plan.dumped is not None:
        dump_step(plan.batch, learner.kept, plan.config, plan.parts.chat)
        say(f"batch of step {plan.dumped}: {plan.batch}")
    if plan.weights is not None:
        write_run(plan.weights, plan.run, plan.parts.model)
        say(f"weights after step {plan.steps[-1].number}: {plan.weights}; headrace eval, chat and export take it as a run")
    return begun and compared.equal


def _changes(plan: Plan) -> Sequence[Change]:
    """What the run depended on and is another now: a difference may come from there."""
    try:
        before = msgspec.json.decode((plan.run / "summary.json").read_bytes())["versions"]
    except (OSError, msgspec.DecodeError, KeyError):  # it has not ended yet, or was killed
        return ()
    return of_versions(before, versions(plan.program))


async def _begin(plan: Plan, rows: Rows, say: Say) -> bool:
    """Have the model as the phase began with it; gives whether what was done for that came out as in the run."""
    there = complete(plan.run / "checkpoints")
    commit = plan.commit or next((each for each in there if phase_of(each) == plan.phase.name), None)
    if commit is not None:
        with commit.reading():
            load_begun(plan.parts.model, commit)
        return True
    return all([await _run_again(plan, number, rows, say) for number in _trained_before(plan)])


def _trained_before(plan: Plan) -> Iterator[int]:
    return (number for number in range(plan.number) if plan.program.phases[number].training is not None)


async def _run_again(plan: Plan, number: int, rows: Rows, say: Say) -> bool:
    phase = plan.program.phases[number]
    compared = Compared(phase.name, rows)
    await Run(phase.make(None).build(quiet=True), watchers=(_Steps(compared, say),), stall_s=None).finish()
    say(compared.report())
    return compared.num_different == 0


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


def _after(commit: Commit, trainer: Gated) -> tuple[Path, GatedState]:
    folder = commit.saved("trainer")
    assert folder is not None, "a commit of a phase that trains has what its trainer saved"
    return folder, read_state(commit, "trainer", trainer, ARRAYS)

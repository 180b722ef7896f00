"""``headrace plan``: measures the training of a program for a moment, and tells which settings would reach a rate.

It trains a few steps for real and then its engine and trainer alone; all else is worked out on paper, see ``graphs.plan``. What
comes before training, as a warm start, is run too, since the lengths of episodes follow from it. Nothing is saved.
"""

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from flow import Run
from graphs.bench import shown
from graphs.bench.text import prose, table_lines
from graphs.commands.command_line import Work, read_program, tell
from graphs.parts import Parts
from graphs.plan.choices import choices, enough, row_sizes
from graphs.plan.measure import Probe, measure
from graphs.plan.played import predicted, without_evaluation
from graphs.plan.times import Times
from graphs.plan.told import NOT_MODELLED, Planned, as_values, sentences, table
from graphs.program import Phase, Program
from graphs.rl_config import RlConfig
from graphs.runs.execute import prove
from graphs.runs.json_rows import encode

_WIDTH = 110
"""Columns of a plan."""


@dataclass(frozen=True)
class PlanOptions:
    """What is measured, and what is wanted."""

    measure: tyro.conf.FlagCreatePairsOff[bool] = False
    """Train for a moment, here and now, to have the times; there is no plan without."""
    probe_steps: int = 3
    """Steps that are trained for real."""
    target_groups_per_minute: float | None = None
    """Rate that is wanted, in groups; None for none."""
    target_steps_per_minute: float | None = None
    """Rate that is wanted, in steps of the trainer; None for none."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print it as one line of JSON, for scripts; docs/plan.md has the names."""

    def check(self) -> None:
        """Refuse what does not go together.

        Raises:
            ValueError: naming it.
        """
        if not self.measure:
            raise ValueError(
                "expected --measure, without which nothing is known of how long the parts of a graph take; got none, in plan; "
                "add it: a few steps are trained here and now"
            )
        if self.probe_steps < 2:
            raise ValueError(
                f"expected at least 2, since the first begins with nothing on its way; got {self.probe_steps}, in "
                "--probe-steps; raise it"
            )
        if self.target_groups_per_minute is not None and self.target_steps_per_minute is not None:
            raise ValueError(
                "expected one of --target-groups-per-minute and --target-steps-per-minute, which is it times groups_per_step; "
                "got both; leave one out"
            )


def plan(arguments: list[str]) -> Work:
    """Read what is wanted, prove the program, and give what measures and tells.

    Raises:
        BuildError, ValueError, LookupError: what the user can mend.
    """
    program, options = read_program("plan", arguments, PlanOptions())
    phase, config, parts = _training(program)
    prove(program, None)

    def work() -> None:
        planned = _planned(program, phase, config, parts, options)
        if options.json:
            sys.stdout.write(encode(as_values(planned)).decode() + "\n")
            return
        first, *rest = sentences(planned)
        tell("\n".join([*prose(first, _WIDTH), "", *table_lines(shown.table(table(planned)), _WIDTH), ""]))
        for line in rest:
            tell(line)
        tell("\n".join(["", "To know:", *(part for note in NOT_MODELLED for part in prose(note, _WIDTH, "- "))]))

    return work


def _training(program: Program) -> tuple[Phase, RlConfig, Parts]:
    """The phase that is planned.

    Raises:
        ValueError: there is none.
    """
    found = [phase for phase in program.phases if phase.recorded is not None]
    if not found or program.parts is None or found[0].recorded is None:
        raise ValueError(
            f"expected a program of reinforcement learning, got {program.name} without, in plan; headrace --help lists those "
            "that learn by reward"
        )
    return found[0], found[0].recorded, program.parts


def _planned(program: Program, phase: Phase, config: RlConfig, parts: Parts, options: PlanOptions) -> Planned:
    few = without_evaluation(config, steps=options.probe_steps)
    probe, times = asyncio.run(_measured(program, phase, few, parts))
    target = options.target_groups_per_minute
    if options.target_steps_per_minute is not None:
        target = options.target_steps_per_minute * config.groups_per_step
    found = choices(without_evaluation(config), parts, times, _telling)
    chosen = None if target is None else enough(found, target)
    return Planned(program.name, config, probe, predicted(few, parts, times), times, found, target, chosen)


async def _measured(program: Program, phase: Phase, config: RlConfig, parts: Parts) -> tuple[Probe, Times]:
    await _until(program, phase, parts)
    with tempfile.TemporaryDirectory() as folder:
        return await measure(config, parts, Path(folder) / "probe.pftrace", row_sizes(config), _telling)


async def _until(program: Program, phase: Phase, parts: Parts) -> None:
    """Load the model and train what comes before a phase."""
    parts.load()
    for before in program.phases[: program.phases.index(phase)]:
        if before.training is not None:
            _telling(0, 1, f"{before.title}, which training begins with")
            async with parts.engine:
                await before.prepare()
                await Run(before.make(None).build(quiet=True)).finish()


def _telling(done: int, total: int, what: str) -> None:
    sys.stderr.write(f"plan: {done} of {total}, {what}\n")

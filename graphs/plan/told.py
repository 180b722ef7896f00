"""A plan as a table, as sentences, and as plain values for scripts. Pure."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphs.bench.experiment import Cell, Column, Table
from graphs.plan.choices import Choice, told
from graphs.plan.measure import Probe
from graphs.plan.played import Predicted
from graphs.plan.times import Times
from graphs.rl_config import RlConfig

NOT_MODELLED = (
    "Episodes are those of the measured steps, said and answered again: what other settings do to what is learned, and so to "
    "their lengths, is not in it, nor are attempts that fail.",
    "Work that meets on the processors of this machine gets equal shares of them; what it loses beside that in caches and "
    "memory bandwidth is not in it. Other programs keep as much of them busy as they did while it was measured.",
    "Slots of the engine, lengths of rows and the split of devices into meshes are as they were measured: others are other "
    "compiled programs, whose times nobody knows before they are measured. Plan again with them.",
    "Evaluation during training, commits and loggers are not in it.",
)
"""What a reader has to know of any plan."""


@dataclass(frozen=True)
class Planned:
    """All that a plan found.

    Attributes:
        name: of the program.
        config: that was measured.
        probe: the real run.
        again: the same on paper.
        times: measured.
        choices: the cheapest first.
        target: groups a minute that are wanted; ``None`` for none.
        chosen: the cheapest that reaches it; ``None`` where none does, or none is wanted.
    """

    name: str
    config: RlConfig
    probe: Probe
    again: Predicted
    times: Times
    choices: Sequence[Choice]
    target: float | None
    chosen: Choice | None


def table(planned: Planned) -> Table:
    """A row for each choice."""
    pools = list(planned.config.pools)
    columns = [
        Column("mark", ""),
        Column("at_once", "episodes at once"),
        Column("lag", "max_lag"),
        Column("rows", "rows"),
        *(Column(name, f"pool {name}") for name in pools),
        Column("groups", "groups/min"),
        Column("steps", "steps/min"),
        Column("idle", "trainer idle", "share", 2),
        Column("engine", "engine busy", "share", 2),
        Column("memory", "gradient", "MiB"),
    ]
    return Table(
        "settings near those asked about, the cheapest first",
        columns,
        [_row(choice, choice is planned.chosen) for choice in planned.choices],
        note="* as asked about; > the cheapest that reaches the target. Rates are of a run that is under way. Gradient: memory "
        "that a micro-batch works in, beside weights and optimizer, as the compiler tells.",
    )


def sentences(planned: Planned) -> list[str]:
    """What was measured, how well it is told again, and what to choose."""
    real, again = planned.probe.groups_per_minute, planned.again.groups_per_minute
    steps = len(planned.probe.moments) - 1
    lines = [
        f"measured: {steps} steps of {planned.probe.trained} groups, {told(planned.config)}: {real:.3g} groups a minute. On "
        f"paper the same steps come at {again:.3g}, {again / real - 1:+.0%}"
    ]
    cores = os.cpu_count() or 1
    if planned.times.shared and planned.times.processors < 0.9 * min(cores, 2):
        lines.append(
            f"warning: other programs left {planned.times.processors:.2g} of {cores} processors to what was measured; plan "
            "again when the machine is quiet, unless they stay"
        )
    if not planned.again.microbatches:
        lines.append("warning: no group of these steps had anything to train, so the trainer costs nothing in this plan")
    if planned.target is None:
        return lines
    wanted = f"{planned.target:.3g} groups a minute"
    if planned.chosen is None:
        best = max(planned.choices, key=lambda choice: choice.groups_per_minute)
        return [
            *lines,
            f"no choice reaches {wanted}; the fastest has {best.groups_per_minute:.3g}: {' '.join(best.arguments())}",
        ]
    return [*lines, f"the cheapest that reaches {wanted}: {' '.join(planned.chosen.arguments())}"]


def as_values(planned: Planned) -> Mapping[str, Any]:
    """For scripts; docs/plan.md has the names."""
    times = planned.times
    return {
        "program": planned.name,
        "measured": {
            "groups_per_minute": planned.probe.groups_per_minute,
            "on_paper": planned.again.groups_per_minute,
            "steps": len(planned.probe.moments) - 1,
            "decode_s": {str(rows): seconds for rows, seconds in times.engine.decode_s.items()},
            "prefill_s": {str(rows): seconds for rows, seconds in times.engine.prefill_s.items()},
            "engine_processors": times.engine.demand,
            "gradient_s": {
                f"{rows}x{length}": seconds
                for each in times.trainer.values()
                for (rows, length), seconds in each.gradient_s.items()
            },
            "trainer_processors": {str(rows): each.demand for rows, each in times.trainer.items()},
            "turn_s": times.turn_s,
            "processors": times.processors,
        },
        "target_groups_per_minute": planned.target,
        "choices": [_as_value(choice) for choice in planned.choices],
        "chosen": None if planned.chosen is None else _as_value(planned.chosen),
        "not_modelled": list(NOT_MODELLED),
    }


def _as_value(choice: Choice) -> dict[str, Any]:
    return {
        "max_concurrency": choice.config.max_concurrency,
        "max_lag": choice.config.max_lag,
        "rows_per_microbatch": choice.config.trainer.rows_per_microbatch,
        "pools": dict(choice.config.pools),
        "groups_per_minute": choice.groups_per_minute,
        "steps_per_minute": choice.steps_per_minute,
        "trainer_idle": choice.predicted.trainer_idle,
        "engine_busy": choice.predicted.engine_busy,
        "gradient_bytes": choice.gradient_bytes,
        "arguments": list(choice.arguments()),
    }


def _row(choice: Choice, chosen: bool) -> Mapping[str, Cell]:
    return {
        "mark": ">" * chosen + "*" * choice.current,
        "at_once": choice.config.max_concurrency,
        "lag": choice.config.max_lag,
        "rows": choice.config.trainer.rows_per_microbatch,
        **choice.config.pools,
        "groups": choice.groups_per_minute,
        "steps": choice.steps_per_minute,
        "idle": choice.predicted.trainer_idle,
        "engine": choice.predicted.engine_busy,
        "memory": None if choice.gradient_bytes is None else choice.gradient_bytes / 2**20,
    }

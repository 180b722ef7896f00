"""Logs to Weights & Biases: one run there for a run here, however often it was started.

Where it goes is W&B's own affair: ``WANDB_PROJECT``, ``WANDB_ENTITY``, ``WANDB_MODE`` and the like. Without a key, and with no
mode chosen, it is offline: files in ``RUN/wandb``, which ``wandb sync`` sends later. A row that was logged before a kill, and
comes again since the run goes on from a commit before it, is not logged twice.
"""

import os
import secrets
from collections.abc import Mapping
from typing import Any

from graphs.loggers.logger import Told, place_of
from graphs.runs.metrics import kind_of, numbers
from stages.packages import optional_package

_ID = "wandb-run-id"
_AXES = {"step": "step", "evaluation": "version", "progress": "evaluated", "health": "seconds"}


class Wandb:
    """A logger.

    Args:
        wandb: the package.
        run: of W&B.
        logged: phases, stages and places of rows that it has already.
    """

    def __init__(self, wandb: Any, run: Any, logged: set[tuple[str, str, int]]) -> None:
        self._wandb, self._run, self._logged = wandb, run, logged
        self._phases: set[str] = set()

    def row(self, row: Mapping[str, Any]) -> None:
        """Log the numbers of a row as ``PHASE/KIND/METRIC``, or ``KIND/METRIC`` for health."""
        place = place_of(row)
        if place is None or (row["phase"], row["stage"], place) in self._logged:
            return
        kind = kind_of(row) or row["stage"]
        prefix = f"{row['phase']}/{kind}"
        axis = _AXES.get(kind, "step")
        if prefix not in self._phases:
            self._phases.add(prefix)
            self._run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/{axis}")
        self._run.log({f"{prefix}/{name}": value for name, value in numbers(row)})

    def episode(self, episode: Mapping[str, Any]) -> None:
        """Nothing: steps have the means."""

    def close(self, summary: Mapping[str, Any]) -> None:
        """Finish the run, failed where it failed, and W&B's own process with it where nobody else has a run open."""
        self._run.summary.update(dict(numbers(summary)))
        self._run.finish(exit_code=0 if summary.get("status") in ("completed", "suspended") else 1)
        if self._wandb.setup().most_recent_active_run is None:
            self._wandb.teardown()


def open_wandb(told: Told) -> Wandb:
    """Begin a run there, or go on with the one that belongs to this run."""
    wandb = optional_package("wandb", "wandb", "--options.loggers wandb")
    there = told.folder / "wandb" / _ID
    if not there.exists():
        there.parent.mkdir(exist_ok=True)
        there.write_text(secrets.token_hex(8))
    # Without a key it would ask for one, on the console.
    mode = None if "WANDB_MODE" in os.environ or wandb.login(prompt=False, verify=False) else "offline"
    run = wandb.init(
        id=there.read_text().strip(),
        name=told.name,
        project=os.environ.get("WANDB_PROJECT", "headrace"),
        job_type=told.program,
        dir=str(told.folder),
        config=dict(told.config),
        resume="allow",
        reinit="create_new",  # of a run of the user's own that is open it would be the end
        mode=mode,
        settings=wandb.Settings(console="off", silent=True),
    )
    again = {(row["phase"], row["stage"], place) for row in told.superseded() if (place := place_of(row)) is not None}
    return Wandb(wandb, run, again)

"""Evaluating what a run saved: its own program, with the newest checkpoint in the model and one evaluation as only phase."""

import dataclasses
from pathlib import Path
from typing import Any

from graphs.catalogue import Entry
from graphs.program import Program, evaluation
from stages.checkpoint.store import load_parameters


def evaluation_of(entry: Entry, config: Any, run: Path) -> Program:
    """Make the evaluation.

    Args:
        entry: the run's program in the catalogue.
        config: the run's settings, perhaps with another ``evaluate``.
        run: its folder.

    Raises:
        ValueError: the run has no checkpoint, or it is of another model.
    """
    program = entry.make(config)
    assert program.parts is not None, "every ready program has parts"
    load_parameters(program.parts.model, run / "checkpoints")
    phases = (evaluation("heldout", config.evaluate, program.parts, main=True),)
    return dataclasses.replace(program, name=f"{program.name}-eval", phases=phases, max_lag=None)

"""Evaluating what a run saved: its own program, with the newest checkpoint in the model and one evaluation as only phase."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from graphs.catalogue import Entry
from graphs.parts import Parts
from graphs.program import Program, evaluation
from stages.checkpoint.store import complete_steps, load_parameters
from stages.models.lora import has_adapters


def evaluation_of(entry: Entry, config: Any, run: Path) -> Program:
    """Make the evaluation.

    Args:
        entry: the run's program in the catalogue.
        config: the run's settings, perhaps with another ``evaluate``.
        run: its folder.

    Raises:
        LookupError: the run has no checkpoint.
    """
    program = entry.make(config)
    if not complete_steps(run / "checkpoints"):
        raise LookupError(f"expected a complete checkpoint in '{run / 'checkpoints'}', got none; the run saved nothing")
    assert program.parts is not None, "every ready program has parts"
    parts = dataclasses.replace(program.parts, load=functools.partial(_load, program.parts, run / "checkpoints"))
    phases = (evaluation("heldout", config.evaluate, parts, main=True),)
    return dataclasses.replace(program, name=f"{program.name}-eval", parts=parts, phases=phases, max_lag=None)


def _load(parts: Parts, checkpoints: Path) -> None:
    """What the run saved: adapters belong to the weights it began with."""
    if has_adapters(parts.model):
        parts.load()
    load_parameters(parts.model, checkpoints)

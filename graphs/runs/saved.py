"""What a run saved: its settings, and its program again with the newest checkpoint in the model."""

import dataclasses
import difflib
import functools
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from graphs.catalogue import CATALOGUE, Entry, find
from graphs.parts import Parts
from graphs.program import Program, evaluation
from graphs.seeds import seeded
from graphs.settings import refusal
from stages.checkpoint.store import load_parameters, with_parameters
from stages.models.lora import has_adapters


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run. Models have a ``config.json`` too, but no program in it."""
    try:
        return "program" in msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return False


def saved_config(run: Path) -> dict[str, Any]:
    """What a run wrote down of itself: ``program``, its name, and ``config``, its settings.

    Raises:
        LookupError: the folder is not that of a run; the nearest is named.
        ValueError: the file is damaged.
    """
    path = run / "config.json"
    if not path.exists():
        runs = sorted(p.parent.name for p in run.parent.glob("*/config.json")) if run.parent.exists() else []
        near = difflib.get_close_matches(run.name, runs, 1)
        hint = f"did you mean '{run.parent / near[0]}'?" if near else "give the folder of a run, such as runs/NAME"
        raise LookupError(f"expected a run with a config.json, got '{run}'; {hint}")
    try:
        saved = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise ValueError(f"expected a JSON config in {path}, got {error}; the file is damaged") from error
    if not isinstance(saved, dict) or "program" not in saved:
        raise LookupError(f"expected the config.json of a run, got another one, in '{run}'; give a folder such as runs/NAME")
    return saved


def saved_entry(saved: dict[str, Any]) -> Entry:
    """The program of a run in the catalogue.

    Raises:
        LookupError: it was a graph of the user's own.
    """
    if saved["program"] not in CATALOGUE:
        raise LookupError(
            f"expected a run of one of {', '.join(CATALOGUE)}, got one of '{saved['program']}'; "
            "what a graph of your own learned is for your own code to use"
        )
    return find(saved["program"])


def understood(config_type: type[BaseModel], saved: dict[str, Any]) -> BaseModel:
    """Settings as they were saved.

    Raises:
        ValueError: naming each that this version does not know or allow.
    """
    try:
        return config_type.model_validate(saved)
    except ValidationError as error:
        raise ValueError(f"expected a config this version understands, got:\n{refusal(error)}") from error


def saved_program(run: Path) -> Program:
    """The program of a run, which loads its newest checkpoint.

    Raises:
        LookupError: no run, or one without a checkpoint.
        ValueError: settings that this version does not understand.
    """
    saved = saved_config(run)
    entry = saved_entry(saved)
    return _with_checkpoint(entry.make(understood(entry.config, saved["config"])), run)


def evaluation_of(entry: Entry, config: Any, run: Path) -> Program:
    """Evaluation of what a run saved, as only phase.

    Args:
        entry: the run's program in the catalogue.
        config: the run's settings, perhaps with another ``evaluate``.
        run: its folder.

    Raises:
        LookupError: the run has no commit with parameters.
    """
    program = _with_checkpoint(entry.make(config), run)
    assert program.parts is not None, "every ready program has parts"
    phases = (evaluation("heldout", seeded(config).evaluate, program.parts, main=True),)
    return dataclasses.replace(program, name=f"{program.name}-eval", phases=phases, max_lag=None)


def _with_checkpoint(program: Program, run: Path) -> Program:
    if not with_parameters(run / "checkpoints"):
        raise LookupError(
            f"expected a commit with parameters in '{run / 'checkpoints'}', got none; a run makes its first after "
            "--options.checkpoint-every steps of a training: let it get there, or headrace resume it"
        )
    assert program.parts is not None, "every ready program has parts"
    parts = dataclasses.replace(program.parts, load=functools.partial(_load, program.parts, run / "checkpoints"))
    return dataclasses.replace(program, parts=parts)


def _load(parts: Parts, checkpoints: Path) -> None:
    """What the run saved: adapters belong to the weights it began with."""
    if has_adapters(parts.model):
        parts.load()
    load_parameters(parts.model, checkpoints)

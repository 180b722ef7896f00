"""Reads settings from a command line, and says what is wrong with them in our sentences. What the settings are is elsewhere.

tyro writes its own errors, of unknown names and values that are no number; those of the configs themselves are told here, and
what a name of another trainer is called.
"""

import contextlib
import io
import sys
from collections.abc import Sequence
from typing import TypeVar

import tyro
from pydantic import ValidationError

from graphs.coming_from import told_of

Config = TypeVar("Config")
_ROOT = "config"
"""Field of what is read that stands for the program's settings themselves: no one types it."""


def read_settings(kind: type[Config], arguments: Sequence[str], prog: str) -> Config:
    """Read the settings of a command.

    Args:
        kind: a dataclass or a pydantic model.
        arguments: of the command line.
        prog: the command, for help.

    Raises:
        ValueError: a config refuses them; the text has the path of each.
        SystemExit: with status 2, after tyro said what it does not know; with 0 after help.
    """
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            return tyro.cli(kind, args=arguments, prog=prog)
    except SystemExit as ended:
        # tyro turns what a config raises into a box of pydantic's own words, and ends; the error is behind what it raised.
        refused = _behind(ended)
        if refused is not None:
            raise ValueError(refusal(*refused)) from None
        sys.stderr.write(told.getvalue() + _of_others(arguments, told.getvalue()))
        raise


def _of_others(arguments: Sequence[str], told: str) -> str:
    """What to add where an unknown setting is one of another trainer; empty for nothing."""
    if "Unrecognized options" not in told:
        return ""
    flags = (argument.partition("=")[0] for argument in arguments if argument.startswith("--") or "=" in argument)  # Hydra's
    sentences = (told_of(flag) for flag in dict.fromkeys(flags) if flag in told)
    return "".join(f"headrace: {sentence}\n" for sentence in sentences if sentence is not None)


def refusal(error: ValidationError, path: str = "") -> str:
    """What a config refuses, a sentence for each fault.

    Args:
        error: of the config.
        path: where the config stands, such as ``rl.loss``; empty for the settings as a whole.
    """
    lines = []
    for fault in error.errors():
        place = ".".join(str(part).replace("_", "-") for part in (path, *fault["loc"]) if part != "")
        own = fault.get("ctx", {}).get("error")
        text = str(own) if own is not None else f"{fault['msg'][:1].lower()}{fault['msg'][1:]}, got {fault['input']!r}"
        lines.append(f"{place}: {text}" if place else text)
    return "\n".join(lines)


def _behind(ended: BaseException) -> tuple[ValidationError, str] | None:
    """The refusal of a config that led to an end, and the path of the config; ``None`` where it was something else."""
    path, error = "", ended.__context__
    while error is not None:
        if isinstance(error, ValidationError):
            return error, path.removeprefix(_ROOT).removeprefix(".")
        found = getattr(error, "arg", "")
        path, error = found if isinstance(found, str) else "", error.__context__
    return None

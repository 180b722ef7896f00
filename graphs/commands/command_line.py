"""Reads a program and its settings from the arguments of a command, and tells on the console. What commands do is elsewhere.

Settings are written as ``--section.field value``; tyro reads them into the program's pydantic config.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import tyro
from pydantic import BaseModel
from rich.console import Console

from flow import Plan
from graphs.catalogue import find, starting_from
from graphs.own import load_function, make_program
from graphs.placing import placing_warnings
from graphs.program import Phase, Program
from graphs.runs.options import Options, SavingOptions
from graphs.runs.saved import understood
from graphs.settings import read_settings
from stages.models.pretrained import check_weights

Work = Callable[[], None]
"""What is left to do once everything a user can get wrong is settled."""


def read_program(command: str, arguments: list[str], options: Any = None) -> tuple[Program, Any]:
    """The program of a command, with its settings, and the options.

    Args:
        command: its name, for help.
        arguments: name of the program, or ``path/to/file.py:function``, and settings.
        options: of the command, to start from; they stand beside the settings and have no section. ``None`` for ``Options``,
            which have one.

    Raises:
        ValueError: settings that do not go together, or a file of one's own that cannot be used.
        LookupError: there is no such program.
        SystemExit: after tyro told what it does not know.
    """
    name, *rest = arguments
    flat, start = options is not None, Options() if options is None else options
    if ".py:" in name:
        function, config_type = load_function(name)
        config, options = parsed(f"headrace {command} {name}", config_type, rest, start, flat=flat)
        return dataclasses.replace(make_program(name, function, config), made_by=name), options
    entry = find(name)
    default, rest = starting_from(entry, rest)
    config, options = parsed(f"headrace {command} {name}", entry.config, rest, start, default=default, flat=flat)
    return dataclasses.replace(entry.make(config), name=name, made_by=name), options


def read_again(run: str, saved: dict[str, Any], arguments: list[str]) -> tuple[Program, SavingOptions]:
    """The program of a run with its own settings and options, but for those that are given.

    Args:
        run: its folder, for help.
        saved: what it wrote down of itself.
        arguments: settings.

    Raises:
        ValueError, LookupError, SystemExit: see ``read_program``.
    """
    prog, name, options = f"headrace resume {run}", saved["made_by"], msgspec.convert(saved["options"], SavingOptions)
    if ".py:" in name:
        function, config_type = load_function(name)
        config, options = parsed(prog, config_type, arguments, options, saved["config"])
        return dataclasses.replace(make_program(name, function, config), made_by=name), options
    entry = find(name)
    config, options = parsed(prog, entry.config, arguments, options, saved["config"])
    return dataclasses.replace(entry.make(config), name=name, made_by=name), options


def parsed(
    prog: str,
    config_type: type[BaseModel] | None,
    arguments: list[str],
    options: Any,
    saved: dict[str, Any] | None = None,
    default: BaseModel | None = None,
    *,
    flat: bool = False,
) -> tuple[Any, Any]:
    """Read settings and options. tyro ends with status 2 and the nearest valid key where one is unknown.

    Args:
        prog: the command, for help.
        config_type: of the settings; ``None`` where there are none.
        arguments: of the command line.
        options: those to start from.
        saved: settings to start from, as a run wrote them down; ``None`` for ``default``.
        default: settings to start from; ``None`` for those of ``config_type`` itself.
        flat: whether options have no section of their own.

    Raises:
        ValueError: settings that do not go together, or an option out of range.
    """
    config: list[Any] = []
    if config_type is not None:
        config.append(("config", Annotated[config_type, tyro.conf.arg(name="")], *_default(config_type, saved, default)))
    kind: Any = Annotated[type(options), tyro.conf.arg(name="")] if flat else type(options)
    fields = [*config, ("options", kind, dataclasses.field(default_factory=lambda: options))]
    read = read_settings(dataclasses.make_dataclass("Settings", fields), arguments, prog)
    read.options.check()
    return getattr(read, "config", None), read.options


def _default(config_type: type[BaseModel], saved: dict[str, Any] | None, default: BaseModel | None) -> tuple[Any, ...]:
    """What to start from, as a field of a dataclass; nothing where the config has settings without a default."""
    if saved is not None:
        start = understood(config_type, saved)
    elif default is not None:
        start = default
    elif any(field.is_required() for field in config_type.model_fields.values()):
        return ()
    else:
        start = config_type()
    return (dataclasses.field(default_factory=lambda: start),)


def warn(program: Program, plans: Sequence[tuple[Phase, Plan]], more: Sequence[str] = ()) -> None:
    """Say what is allowed and probably not meant.

    Args:
        program: whose devices and model are looked at.
        plans: of its phases.
        more: what is known beside.
    """
    warnings = [*more, *(warning for phase, _ in plans for warning in phase.warnings)]
    if program.parts is not None:
        warnings += placing_warnings(program.parts.model, program.parts.engine.mesh, program.parts.reference_mesh)
        warnings += _weights_elsewhere(program)
    for warning in dict.fromkeys([*warnings, *(warning for _, plan in plans for warning in plan.warnings)]):
        tell(f"warning: {warning}")


def _weights_elsewhere(program: Program) -> list[str]:
    """What to say of a model that was described by its configuration alone."""
    source = None if program.parts is None else program.parts.source
    try:
        if source is not None:
            check_weights(source.path)
    except FileNotFoundError as error:
        return [f"the weights are not all here, so that it can be checked and not run: {error}"]
    return []


def tell(text: str) -> None:
    """Print a line, however long."""
    Console(soft_wrap=True).print(text, highlight=False, markup=False)

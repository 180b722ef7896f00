"""Programs out of a user's own file: ``path/to/file.py:function``. Mistakes in it are told with the user's own lines only."""

import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from pydantic import BaseModel

from flow import BuildError, Graph
from graphs.program import Phase, Program


class OwnFileError(ValueError):
    """Something is wrong with a user's file; the message holds the user's lines."""


def load_function(name: str) -> tuple[Callable[..., Any], type[BaseModel] | None]:
    """Find a function and the config it takes.

    Args:
        name: ``path/to/file.py:function``.

    Returns:
        The function and the type of its one parameter, ``None`` where it has none.

    Raises:
        OwnFileError: the file cannot be imported, or has no such function.
    """
    path, _, function_name = name.rpartition(":")
    module = load_module(Path(path))
    function = getattr(module, function_name, None)
    if function is None:
        names = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        near = difflib.get_close_matches(function_name, names, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"its functions are {', '.join(names) or 'none'}"
        raise OwnFileError(f"expected a function '{function_name}' in {path}, got none; {hint}")
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        kind = "an async function" if inspect.iscoroutinefunction(function) else type(function).__name__
        raise OwnFileError(
            f"expected a plain function '{function_name}' in {path}, got {kind}; give it one that returns a graph"
        )
    hints = {key: value for key, value in get_type_hints(function).items() if key != "return"}
    parameters = list(inspect.signature(function).parameters)
    if not parameters:
        return function, None
    config = hints.get(parameters[0])
    if len(parameters) > 1 or not (isinstance(config, type) and issubclass(config, BaseModel)):
        raise OwnFileError(
            f"expected '{function_name}' in {path} to take nothing or one pydantic config, got {inspect.signature(function)}; "
            "gather its settings in a BaseModel"
        )
    return function, config


def make_program(name: str, function: Callable[..., Any], config: BaseModel | None) -> Program:
    """Call a user's function.

    Raises:
        OwnFileError: it raised, or gave something else than a graph or a program.
        BuildError: as it was raised.
    """
    path = Path(name.rpartition(":")[0])
    try:
        made = function() if config is None else function(config)
    except BuildError:
        raise
    except Exception as error:
        raise OwnFileError(_told(error, path, f"calling {name}")) from error
    if isinstance(made, Graph):
        return Program(made.name, config, None, (Phase(made.name, f"graph {made.name}", lambda folder: made, main=True),))
    if not isinstance(made, Program):
        hint = "; did you forget to return it?" if made is None else ""
        raise OwnFileError(f"expected a Graph or a Program from {name}, got {type(made).__name__}{hint}")
    return made


def load_module(path: Path) -> ModuleType:
    """Import a user's file. Its folder is on the path afterwards.

    Raises:
        OwnFileError: there is none, or importing it raised.
    """
    if not path.is_file():
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise OwnFileError(f"expected a Python file, got '{path}', which does not exist{where}")
    # A name of its own, so that a file called flow.py replaces nothing; its folder, so that it can import its neighbours.
    spec = importlib.util.spec_from_file_location(f"_own_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OwnFileError(_told(error, path, f"importing {path}")) from error
    return module


def _told(error: BaseException, path: Path, doing: str) -> str:
    """The error with the user's lines, without ours."""
    lines = traceback.format_exception_only(error)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == path.parent.absolute()
    ]
    return f"{doing} failed:\n" + "".join([*traceback.format_list(frames), *lines]).rstrip()

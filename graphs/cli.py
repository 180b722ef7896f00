"""The command line: ``headrace run | check | draw | eval``. Exit status 2 for anything the user can mend before work starts.

Settings are written as ``--section.field value``; tyro reads them into the program's pydantic config.
"""

import asyncio
import dataclasses
import datetime
import difflib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import msgspec
import tyro
from pydantic import BaseModel, ValidationError
from rich.console import Console

# Before transformers is imported: its notices of absent packages say nothing here.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from flow import BuildError, FlowError, Graph, Plan
from graphs.catalogue import CATALOGUE, find
from graphs.execute import check_parts, execute, prepare
from graphs.program import Phase, Program
from graphs.run_folder import RunFolder
from graphs.saved import evaluation_of
from graphs.view import View

USAGE = """headrace: train LLM agents with reinforcement learning on JAX, as a typed dataflow graph

  headrace run NAME [--section.field value ...]     run a program; --help lists its settings
  headrace check NAME [--section.field value ...]   prove its graphs without running them
  headrace draw NAME [--section.field value ...]    draw its graphs
  headrace eval RUN [--section.field value ...]     evaluate the weights a run saved

NAME is one of the following, or path/to/file.py:function for a function of your own that returns a graph or a program.
"""


Work = Callable[[], None]
"""What is left to do once everything a user can get wrong is settled."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Where a run goes."""

    name: str | None = None
    """Folder of the run under ``folder``; None makes one of the program's name and the time."""
    folder: Path = Path("runs")
    """Folder of all runs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``headrace`` command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        _print(USAGE + "\n".join(f"  {name:<14} {entry.title}" for name, entry in CATALOGUE.items()))
        raise SystemExit(0 if given else 2)
    commands: dict[str, Callable[[list[str]], Work | None]] = {"run": _run, "check": _check, "draw": _draw, "eval": _eval}
    command = commands.get(given[0])
    if command is None:
        near = difflib.get_close_matches(given[0], commands, 1)
        _refuse(f"expected one of {', '.join(commands)}, got '{given[0]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    if len(given) < 2:
        _refuse(f"expected a name after '{given[0]}', got nothing; headrace --help lists them")
    try:
        work = command(given[1:])
    except (BuildError, ValueError, LookupError, OSError, ImportError) as error:
        _refuse(str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error))
    if work is None:
        return
    try:
        work()
    except Exception as error:
        _fail(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(130) from None


def _run(arguments: list[str]) -> Work:
    program, options = _program("run", arguments)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = RunFolder(options.folder / (options.name or f"{program.name}-{stamp}"))
    return _executed(program, folder)


def _executed(program: Program, folder: RunFolder) -> Work:
    plans = prepare(program, folder)
    _warn(program, [plan for _, plan in plans])

    def work() -> None:
        summary = asyncio.run(execute(program, plans, folder, View(Console())))
        _print(f"summary: {folder.path / 'summary.json'}")
        scores = [f"{summary[key]:.3f} {label}" for key, label in _SCORES if summary.get(key) is not None]
        if scores:
            _print(f"held-out success: {', '.join(scores)}")
        if summary["status"] != "completed":
            raise SystemExit(130)

    return work


_SCORES = (("heldout_before", "before"), ("heldout_after", "after"), ("heldout", "now"))


def _check(arguments: list[str]) -> None:
    program, _ = _program("check", arguments)
    plans = [phase.make(None).build() for phase in program.phases]
    check_parts(program)
    _warn(program, plans)
    _print(f"{program.name}: {len(plans)} graph{'s' if len(plans) != 1 else ''} can run")


def _warn(program: Program, plans: Sequence[Plan]) -> None:
    """Say what is allowed and probably not meant."""
    warnings = [warning for phase in program.phases for warning in phase.warnings]
    for warning in dict.fromkeys([*warnings, *(warning for plan in plans for warning in plan.warnings)]):
        _print(f"warning: {warning}")


def _draw(arguments: list[str]) -> None:
    program, _ = _program("draw", arguments)
    graphs = {graph.name: graph for graph in (phase.make(None) for phase in program.phases)}
    _print("\n\n".join(graph.draw() for graph in graphs.values()))
    for graph in graphs.values():
        graph.build()


def _eval(arguments: list[str]) -> Work:
    run, *rest = arguments
    saved = _saved_config(Path(run))
    entry = find(saved["program"])
    config, _ = _parsed(f"headrace eval {run}", entry.config, rest, saved["config"])
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return _executed(evaluation_of(entry, config, Path(run)), RunFolder(Path(run) / f"eval-{stamp}"))


def _saved_config(run: Path) -> dict[str, Any]:
    path = run / "config.json"
    if not path.exists():
        runs = sorted(p.parent.name for p in run.parent.glob("*/config.json")) if run.parent.exists() else []
        near = difflib.get_close_matches(run.name, runs, 1)
        hint = f"did you mean '{run.parent / near[0]}'?" if near else "give the folder of a run, such as runs/NAME"
        raise LookupError(f"expected a run with a config.json, got '{run}'; {hint}")
    return msgspec.json.decode(path.read_bytes())


def _program(command: str, arguments: list[str]) -> tuple[Program, Options]:
    name, *rest = arguments
    if ".py:" in name:
        return _users_program(command, name, rest)
    entry = find(name)
    config, options = _parsed(f"headrace {command} {name}", entry.config, rest, default=entry.default)
    return dataclasses.replace(entry.make(config), name=name), options


def _users_program(command: str, name: str, arguments: list[str]) -> tuple[Program, Options]:
    """A function of the user's own: it may take one pydantic config, and gives a graph or a program."""
    path, _, function_name = name.partition(".py:")
    spec = importlib.util.spec_from_file_location(Path(path).name, f"{path}.py")
    if spec is None or spec.loader is None or not Path(f"{path}.py").exists():
        raise LookupError(f"expected a Python file, got '{path}.py', which does not exist")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, function_name, None)
    if not callable(function):
        near = difflib.get_close_matches(function_name, dir(module), 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise LookupError(f"expected a function '{function_name}' in {path}.py, got none{hint}")
    hints = {key: value for key, value in get_type_hints(function).items() if key != "return"}
    config_type = next(iter(hints.values()), None)
    config, options = _parsed(f"headrace {command} {name}", config_type, arguments)
    made = function() if config_type is None else function(config)
    if isinstance(made, Graph):
        phase = Phase(made.name, f"graph {made.name}", lambda folder: made, main=True)
        return Program(made.name, config, None, (phase,)), options
    if not isinstance(made, Program):
        raise LookupError(f"expected a Graph or a Program from {name}, got {type(made).__name__}")
    return made, options


def _parsed(
    prog: str,
    config_type: type[BaseModel] | None,
    arguments: list[str],
    saved: dict[str, Any] | None = None,
    default: BaseModel | None = None,
) -> tuple[Any, Options]:
    """Read settings from the command line. tyro ends with status 2 and the nearest valid key where one is unknown."""
    if config_type is None:
        return None, tyro.cli(_named("Settings", options=Options), args=arguments, prog=prog).options
    try:
        if saved is not None:
            default = config_type.model_validate(saved)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ValueError("expected a config this version understands, got:\n" + "\n".join(lines)) from error
    settings = dataclasses.make_dataclass(
        "Settings",
        [
            ("config", Annotated[config_type, tyro.conf.arg(name="")], dataclasses.field(default=default or config_type())),
            ("options", Options, dataclasses.field(default=Options())),
        ],
    )
    parsed = tyro.cli(settings, args=arguments, prog=prog)
    return parsed.config, parsed.options


def _named(name: str, **fields: Any) -> Any:
    return dataclasses.make_dataclass(name, [(key, kind, dataclasses.field(default=kind())) for key, kind in fields.items()])


def _print(text: str) -> None:
    Console(soft_wrap=True).print(text, highlight=False, markup=False)


def _refuse(text: str) -> NoReturn:
    """Something to mend before work starts."""
    Console(stderr=True, soft_wrap=True).print(f"headrace: {text}", highlight=False, markup=False)
    raise SystemExit(2)


def _fail(error: BaseException) -> NoReturn:
    """A run that failed: the line that says so, then where the stage's own error came from."""
    console = Console(stderr=True, soft_wrap=True)
    cause = error.__cause__ or (None if isinstance(error, FlowError) else error)
    if cause is not None:
        console.print("".join(traceback.format_exception(cause)).rstrip(), highlight=False, markup=False)
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    console.print(f"headrace: {error}{notes}", highlight=False, markup=False)
    raise SystemExit(1)

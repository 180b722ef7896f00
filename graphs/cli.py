"""The command line: ``headrace COMMAND``; ``USAGE`` lists the commands.

Exit status 2 for anything the user can mend before work starts.
"""

import asyncio
import difflib
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from rich.console import Console

# Before transformers is imported: its notices of absent packages say nothing here.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from flow import BuildError, FlowError
from flow.saving import CannotResume
from graphs.catalogue import CATALOGUE
from graphs.commands.bench import bench, listed
from graphs.commands.chat import ChatConfig, find_speaker, hold_chat
from graphs.commands.check import check
from graphs.commands.command_line import Work, parsed, read_again, read_program, tell
from graphs.commands.compiled import keep_compiled
from graphs.commands.doctor import doctor
from graphs.commands.export import ExportOptions, loading_line, prepare_export
from graphs.commands.init import start_folder
from graphs.commands.plan import plan
from graphs.commands.replay import replay
from graphs.commands.replay_batch import prepare_repeat
from graphs.commands.run import SUSPENDED, executed, resume, run, unused
from graphs.commands.serve import serve
from graphs.commands.trace import TraceOptions, prepare_trace
from graphs.commands.trial import TryConfig, find_env, pick_task, try_env
from graphs.commands.usage import lines_of
from graphs.commands.view import report, view
from graphs.doctor.packages import read_declared
from graphs.replays.plan import ReplayOptions, prepare_replay
from graphs.runs.folder import RunFolder
from graphs.runs.interrupts import Interrupted, leave
from graphs.runs.options import SavingOptions
from graphs.runs.resuming import check_saves
from graphs.runs.saved import evaluation_of, saved_config, saved_entry
from graphs.serving.config import ServeConfig
from graphs.settings import read_settings, refusal
from stages.tools.audit import AUDIT_FILE, used_credentials
from stages.tools.credentials import revoke
from stages.train.stop import stop_in

USAGE = """headrace: train LLM agents with reinforcement learning on JAX, as a typed dataflow graph

  headrace init FOLDER                              write a task file, tool, environment, graph and test of your own
  headrace try ENV [--agent random|scripted|human]  play an environment without a model; ENV is path/to/file.py:name or NAME
  headrace run NAME [--section.field value ...]     run a program; --help lists its settings
  headrace resume RUN [--section.field value ...]   go on with a run where its latest commit has it
  headrace check NAME [--section.field value ...]   prove its graphs without running them; with --verify-sync also load the
                                                    model and prove that the engine gets its weights to the bit; with
                                                    --topology v5e-8 on devices that are not here, without any weights
  headrace draw NAME [--section.field value ...]    draw its graphs
  headrace eval RUN [--section.field value ...]     evaluate the weights a run saved
  headrace chat MODEL [--temperature value ...]     talk with a model, or with what a run learned
  headrace serve MODEL [--port N] [--section.field value ...]
                                                    serve it, or what a run learned, as OpenAI's interface, to this machine
  headrace export RUN [--out FOLDER]                write what a run learned as a Hugging Face folder
  headrace replay RUN [--to-step N] [--dump-batch N] train again what a run recorded, and compare it step by step
  headrace replay-batch FILE                        repeat the gradient of a bad step, RUN/bad-steps/step-..., and say where it
                                                    went wrong
  headrace report RUN                               write RUN/report.html again: what the run did, as one page
  headrace view RUN [--port N]                      serve that page on this machine, fresh while the run goes on; RUN may be
                                                    the folder that all runs lie in
  headrace trace RUN [--compare OTHER] [--json]     say what limited a run, from its trace, and what to try next
  headrace revoke RUN NAME                          take a credential back from a run's tools, at once
  headrace bench [NAME | all] [--section.field value ...] [--short] [--out FOLDER] [--json]
                                                    measure headrace here; without NAME, list the experiments there are;
                                                    bench page FOLDER DOC writes what they found as a .md or .html file,
                                                    bench compare FOLDER OTHER tells what came out otherwise
  headrace plan NAME --measure [--section.field value ...] [--target-groups-per-minute X | --target-steps-per-minute X] [--json]
                                                    train some steps, then say on paper which concurrency, lag, pools and
                                                    micro-batches reach that rate
  headrace doctor [--json]                          look at devices, memory, packages and folders, and say what would stop a run

MODEL is a Hugging Face folder, a .gguf file, OWNER/NAME of the Hub, or a RUN, the folder of a run.
NAME is one of the following, or path/to/file.py:function for a function of your own that returns a graph or a program.
Those that train by reward take --algorithm NAME, one of grpo to distill, and whatever is set beside it counts on top.
"""
_NAMES = "\n".join(f"  {name:<14} {entry.title}" for name, entry in CATALOGUE.items())
_SETTINGS = {"try": TryConfig, "chat": ChatConfig, "serve": ServeConfig, "export": ExportOptions, "replay": ReplayOptions}
"""Settings of commands that have the same ones whatever they are called with."""


_ALONE = ("doctor", "bench")
"""Commands that do something without anything more."""


def process() -> NoReturn:
    """What a ``headrace`` process is from beginning to end. An interrupt at any moment of it ends in the one status."""
    try:
        main()
    except KeyboardInterrupt:
        status: Any = SUSPENDED
    except SystemExit as end:
        status = end.code
    else:
        status = 0
    if status == SUSPENDED:
        leave()
    raise SystemExit(status)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line.

    Raises:
        SystemExit: with the status of the command, where it is not 0.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        tell(f"{USAGE}{_NAMES}")
        raise SystemExit(0 if given else 2)
    if given[0] == "--version":
        tell(f"headrace {read_declared().version}")
        raise SystemExit(0)
    commands: dict[str, Callable[[list[str]], Work | None]] = {
        "init": _init,
        "try": _try,
        "run": run,
        "resume": resume,
        "check": check,
        "draw": _draw,
        "eval": _eval,
        "chat": _chat,
        "serve": serve,
        "export": _export,
        "replay": _replay,
        "replay-batch": _repeat,
        "trace": _trace,
        "revoke": _revoke,
        "report": report,
        "view": view,
        "bench": bench,
        "plan": plan,
        "doctor": _doctor,
    }
    command = commands.get(given[0])
    if command is None:
        near = difflib.get_close_matches(given[0], commands, 1)
        _refuse(f"expected one of {', '.join(commands)}, got '{given[0]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    if given[1:] and given[1] in ("-h", "--help") and given[0] != "doctor":
        _help(given[0])
    if len(given) < 2 and given[0] not in _ALONE:
        _refuse(f"expected more after '{given[0]}', got nothing:\n{lines_of(USAGE, given[0])}")
    keep_compiled()
    try:
        _each_once(given[0], given[1:])
        work = command(given[1:])
    except BrokenPipeError:
        _leave_pipe()
    except (BuildError, ValueError, LookupError, OSError, ImportError) as error:
        _refuse(_reason(error))
    if work is None:
        return
    try:
        work()
    except CannotResume as error:
        _refuse(str(error))
    except Interrupted as error:
        _fail(error, SUSPENDED)
    except Exception as error:
        _fail(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(SUSPENDED) from None


def _help(command: str) -> NoReturn:
    """What one command does, and what it takes."""
    tell(lines_of(USAGE, command))
    if command in _SETTINGS:
        read_settings(_SETTINGS[command], ["--help"], f"headrace {command} ...")
    if command == "bench":
        tell(f"\n{listed()}")
    elif " NAME" in lines_of(USAGE, command).partition("\n")[0] and command != "revoke":
        tell(f"\nheadrace {command} NAME --help lists its settings. NAME is path/to/file.py:function, or one of\n{_NAMES}")
    raise SystemExit(0)


def _each_once(command: str, arguments: Sequence[str]) -> None:
    """A setting that is given twice: the second would replace the first without a word.

    Raises:
        ValueError: naming the settings.
    """
    flags = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    counts = Counter(flag.replace("_", "-") for flag in flags)
    twice = {flag: counts[flag.replace("_", "-")] for flag in flags if counts[flag.replace("_", "-")] > 1}
    if twice:
        told = ", ".join(f"{flag} {count} times" for flag, count in twice.items())
        name = next(iter(twice))
        raise ValueError(
            f"expected each setting once, got {told}, in {command}; one of several values takes them all: {name} A B"
        )


def _reason(error: Exception) -> str:
    """What to tell of a refusal. An error of the system's own names a path and no more."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"expected a path that can be used, got '{error.filename}': {error.strerror}; name another"
    if isinstance(error, ValidationError):
        return refusal(error)
    return str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error)


def _draw(arguments: list[str]) -> None:
    program, _ = read_program("draw", arguments)
    graphs = {graph.name: graph for graph in (phase.make(None) for phase in program.phases)}
    tell("\n\n".join(graph.draw() for graph in graphs.values()))
    for graph in graphs.values():
        graph.build(quiet=True)


def _eval(arguments: list[str]) -> Work:
    run_folder, *rest = arguments
    saved = saved_config(Path(run_folder))
    entry = saved_entry(saved)
    config, _ = parsed(f"headrace eval {run_folder}", entry.config, rest, SavingOptions(checkpoint_every=None), saved["config"])
    folder = RunFolder(Path(run_folder) / unused(Path(run_folder), "eval"))
    return executed(evaluation_of(entry, config, Path(run_folder)), folder, SavingOptions(checkpoint_every=None))


def _chat(arguments: list[str]) -> Work:
    name, *rest = arguments
    config = read_settings(ChatConfig, rest, f"headrace chat {name}")
    speaker = find_speaker(name, config)

    def work() -> None:
        try:
            hold_chat(speaker, config, Console(highlight=False))
        except ValueError as error:
            _refuse(str(error))

    return work


def _export(arguments: list[str]) -> Work:
    run, *rest = arguments
    wanted = read_settings(ExportOptions, rest, f"headrace export {run}")
    export = prepare_export(Path(run), wanted.out)

    def work() -> None:
        folder = export()
        tell(f"written: {folder}\nload it with {loading_line(folder)}")

    return work


def _replay(arguments: list[str]) -> Work:
    run, *rest = arguments
    wanted = read_settings(ReplayOptions, rest, f"headrace replay {run}")
    saved = saved_config(Path(run))
    check_saves(Path(run), saved)
    program, _ = read_again(run, saved, [])
    plan = prepare_replay(Path(run), program, wanted)

    def work() -> None:
        if not replay(plan, tell):
            raise SystemExit(1)

    return work


def _repeat(arguments: list[str]) -> Work:
    if len(arguments) != 1:
        raise ValueError(f"expected one bad step; got {' '.join(arguments)}; headrace replay-batch RUN/bad-steps/step-000012")
    repeat = prepare_repeat(Path(arguments[0]))
    return lambda: tell(repeat())


def _trace(arguments: list[str]) -> Work:
    path, *rest = arguments
    return prepare_trace(Path(path), read_settings(TraceOptions, rest, f"headrace trace {path}"))


def _revoke(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise ValueError(f"expected a run and the name of a credential; got {' '.join(arguments)}; headrace revoke RUN NAME")
    run, name = Path(arguments[0]), arguments[1]
    revoke(run, name)
    tell(f"revoked: {name}, for every use from now on")
    used = used_credentials(run / AUDIT_FILE)
    if name not in used:
        tell(f"warning: no call of this run has used it so far; used were {', '.join(sorted(used)) or 'none'}")


def _doctor(arguments: list[str]) -> NoReturn:
    raise SystemExit(doctor(arguments))


def _init(arguments: list[str]) -> None:
    folder, *rest = arguments
    if rest or folder.startswith("-"):
        raise ValueError(f"expected one folder, got {' '.join(arguments)}, in init; write headrace init FOLDER")
    for file in start_folder(Path(folder)):
        tell(f"written: {file}")
    tell(f"next: cd {folder}; headrace try environment.py:Quiz --tasks tasks.jsonl; headrace run graph.py:train; pytest")


def _try(arguments: list[str]) -> Work:
    name, *rest = arguments
    config = read_settings(TryConfig, rest, f"headrace try {name}")
    tried = find_env(name)
    task = pick_task(config, tried)

    def work() -> None:
        if not asyncio.run(try_env(tried.make, task, config, tell)):
            raise SystemExit(1)

    return work


def _leave_pipe() -> NoReturn:
    """Who reads what is told has had enough, as ``head`` has. Nobody hears what is said of it; the status is that of rich."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(1)


def _refuse(text: str) -> NoReturn:
    """Something to mend before work starts."""
    Console(stderr=True, soft_wrap=True).print(f"headrace: {text}", highlight=False, markup=False)
    raise SystemExit(2)


def _fail(error: BaseException, status: int = 1) -> NoReturn:
    """A run that failed: where the error of the stage came from, then the line that says so. One that was stopped: the line."""
    console = Console(stderr=True, soft_wrap=True)
    if (stop := stop_in(error)) is not None:
        console.print(f"headrace: stopped: {stop}", highlight=False, markup=False)
        raise SystemExit(status)
    cause = error.__cause__ or (None if isinstance(error, FlowError | Interrupted) else error)
    if cause is not None:
        console.print("".join(traceback.format_exception(cause)).rstrip(), highlight=False, markup=False)
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    console.print(f"headrace: {error}{notes}", highlight=False, markup=False)
    raise SystemExit(status)


if __name__ == "__main__":
    process()

"""``headrace try ENV``: an episode of an environment without a model; turns come from chance, a script or a person.

What is said is printed as it is said. Not an evaluation: nothing is sampled, recorded or scored by a reward stage.
"""

import contextlib
import difflib
import inspect
import json
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
from pydantic import BaseModel, ConfigDict, Field

from graphs.catalogue import CATALOGUE
from graphs.own import OwnFileError, load_module, make_program
from graphs.program import Program
from stages.cancellation import to_the_end
from stages.envs.answers import AnswerError, checked_opening, checked_reply, checked_score
from stages.envs.environment import Environment
from stages.envs.housed import Housed, MakeEnv
from stages.envs.pool import EnvPool
from stages.envs.random_turns import random_turn
from stages.records import BadCall, Message, Task, ToolCall
from stages.tasks.files import read_tasks
from stages.tools.tool import Tool

Say = Callable[[str], object]

_CALL = re.compile(r"/([\w.-]+)(?:\s*|\s+([{\[].*))", re.DOTALL)
"""A name, and what begins as arguments do: ``/usr/bin is a folder`` is text."""


class TryConfig(BaseModel):
    """One episode of an environment, without a model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    agent: Literal["random", "scripted", "human"] = "random"
    """Who speaks: chance, the turns of ``say``, or you. A turn ``/name {"argument": 1}`` is a call of a tool; one whose
    arguments are broken is a slip, as a model's."""
    say: tuple[str, ...] = ()
    """Turns of the scripted agent, one after another; the episode is left after the last."""
    tasks: Path | None = None
    """JSONL file of tasks; ``None`` takes the program's, or ``TASKS`` of the file, or one task of ``prompt`` and ``answer``."""
    task: str | None = None
    """Id of the task; ``None`` takes the first."""
    prompt: str = "begin"
    """Prompt of the task, where there are no others."""
    answer: str | None = None
    """Its reference answer; ``None`` for none."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Decides the turns of chance, and the environment's own draws."""
    max_turns: int = Field(default=8, ge=1)
    """Most turns of chance."""
    within_s: float = Field(default=60.0, gt=0)
    """Most seconds for each method of the environment."""


@dataclass(frozen=True)
class Tried:
    """An environment to try.

    Attributes:
        make: makes it.
        tasks: what it knows; empty where nobody said.
    """

    make: MakeEnv
    tasks: Sequence[Task]


def find_env(name: str) -> Tried:
    """Look an environment up.

    Args:
        name: ``path/to/file.py:name`` of an environment's class, of a function of a task that makes one, of a pool of them, or
            of a function that returns a program; or a ready program.

    Raises:
        LookupError: there is no such program.
        OwnFileError: the file has no such name, or it is no environment.
    """
    if ".py:" not in name:
        if name not in CATALOGUE:
            near = difflib.get_close_matches(name, CATALOGUE, 1)
            hint = f"did you mean '{near[0]}'?" if near else "for an environment of your own, give path/to/file.py:name"
            raise LookupError(f"expected one of {', '.join(CATALOGUE)}, got '{name}'; {hint}")
        entry = CATALOGUE[name]
        return _of_program(name, entry.make(entry.default or entry.config()))
    path, _, wanted = name.rpartition(":")
    module = load_module(Path(path))
    found = getattr(module, wanted, None)
    if found is None:
        near = difflib.get_close_matches(wanted, vars(module), 1)
        hint = f"did you mean '{near[0]}'?" if near else "name a class or a function of it"
        raise OwnFileError(f"expected an environment '{wanted}' in {path}, got none; {hint}")
    return _of_own(name, found, getattr(module, "TASKS", ()))


def pick_task(config: TryConfig, tried: Tried) -> Task:
    """The task to try.

    Raises:
        ValueError: there is none of that id.
        RowError: the file has broken rows.
    """
    tasks = list(read_tasks(config.tasks)) if config.tasks is not None else list(tried.tasks)
    tasks = tasks or [Task("try", config.prompt, config.answer)]
    if config.task is None:
        return tasks[0]
    found = [task for task in tasks if task.id == config.task]
    if not found:
        known = ", ".join(task.id for task in tasks[:10])
        raise ValueError(f"expected the id of a task, such as {known}; got '{config.task}', in --task")
    return found[0]


async def try_env(make: MakeEnv, task: Task, config: TryConfig, say: Say) -> bool:
    """Play one episode, saying what is said.

    Returns:
        Whether the environment did what it should.
    """
    housed = Housed(make)
    try:
        with anyio.fail_after(config.within_s):
            env = await housed.open(task)
        problem = await _played(env, task, config, say)
    # Whatever it raises is what one wants to see here.
    except Exception as error:
        problem = f"{type(error).__name__}: {error}" if str(error) else f"nothing within {config.within_s:g} s"
    finally:
        closing = await to_the_end(_closed(housed, config.within_s))
    problem = problem or closing
    if problem is not None:
        say(f"broken: {problem}")
    return problem is None


async def _closed(housed: Housed, within_s: float) -> str | None:
    try:
        with anyio.fail_after(within_s):
            await housed.close()
    # As above: closing is the environment's too.
    except Exception as error:
        return f"close: {type(error).__name__}: {error}" if str(error) else f"close: nothing within {within_s:g} s"
    return None


async def _played(env: Environment, task: Task, config: TryConfig, say: Say) -> str | None:
    asked = "reset"
    try:
        with anyio.fail_after(config.within_s):
            opening = checked_opening(await env.reset(task, (config.seed, 0, 0, 0)))
        _show(opening.messages, say)
        for tool in opening.tools:
            say(f"  tool {tool.name}({', '.join(tool.parameters.get('properties', {}))}): {tool.description}")
        asked, how = "step", "left, still going on"
        for message in _turns(config, opening.tools):
            if config.agent != "human" or not sys.stdin.isatty():  # a terminal shows what is typed
                _show([message], say)
            with anyio.fail_after(config.within_s):
                reply = checked_reply(message, await env.step(message), opening.tools)
            _show(reply.messages, say)
            if reply.end is not None:
                how = reply.end.value + (f", {reply.reason}" if reply.reason else "")
                break
        asked = "score"
        with anyio.fail_after(config.within_s):
            parts = checked_score(await env.score())
    except AnswerError as error:
        return f"{asked}: {error}"
    say(f"{how}; score: {', '.join(f'{name} {value:g}' for name, value in (parts or {}).items()) or 'none'}")
    return None


def _turns(config: TryConfig, tools: Sequence[Tool]) -> Iterator[Message]:
    if config.agent == "random":
        rng = random.Random(config.seed)
        return (random_turn(tools, rng, turn) for turn in range(config.max_turns))
    lines = config.say if config.agent == "scripted" else _typed()
    return (read_turn(line, turn) for turn, line in enumerate(lines))


def _typed() -> Iterator[str]:
    """Lines of a person, or of a pipe. A prompt is shown at a terminal only."""
    while True:
        if sys.stdin.isatty():
            sys.stderr.write("> ")
            sys.stderr.flush()
        with _interruptible():
            line = sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\n")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """An interrupt ends what blocks here; the loop's own way with it would wait for the next line."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def read_turn(line: str, turn: int) -> Message:
    """A line as a turn.

    ``/name {...}`` is a call, where what follows the name is an object of JSON. Where that is begun and broken, it is what a
    model writes that slips: a call that is none, which the environment answers with an error. Anything else is text.
    """
    found = _CALL.fullmatch(line)
    if found is None:
        return Message("assistant", line)
    name, arguments = found.groups()
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        given = error
    if isinstance(given, dict):
        return Message("assistant", "", (ToolCall(f"call-{turn}-0", name, given),))
    problem = f"expected the arguments of {name} as an object of JSON, got {arguments[:80]}"
    return Message("assistant", "", (BadCall(f"call-{turn}-0", problem),))


def _show(messages: Sequence[Message], say: Say) -> None:
    for message in messages:
        if message.content or not message.calls:
            say(f"{message.role}: {message.content}")
        for call in message.calls:
            shown = (
                f"calls {call.name} {json.dumps(call.arguments)}" if isinstance(call, ToolCall) else f"slips: {call.problem}"
            )
            say(f"{message.role} {shown}")


def _of_program(name: str, program: Program) -> Tried:
    if program.parts is None:
        raise OwnFileError(f"expected a program with an environment, got {name}, a graph without; name the environment itself")
    make = program.parts.make_env
    return Tried(make.take if isinstance(make, EnvPool) else make, program.parts.train)


def _of_own(name: str, found: Any, tasks: Sequence[Task]) -> Tried:
    if isinstance(found, EnvPool):
        return Tried(found.take, tasks)
    if not callable(found):
        raise OwnFileError(f"expected an environment, got {type(found).__name__}, in {name}; name its class, or what makes it")
    needed = [p for p in inspect.signature(found).parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    annotation = needed[0].annotation if needed else None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _of_program(name, make_program(name, found, annotation()))
    if len(needed) > 1:
        raise OwnFileError(f"expected what takes a task or nothing, got {found.__name__}{inspect.signature(found)}, in {name}")
    return Tried((lambda task: found(task)) if needed else (lambda task: found()), tasks)

"""Names of the ready programs: the only place where a name becomes a class."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from graphs.algorithms import ALGORITHMS
from graphs.calculator import CalculatorConfig, calculator
from graphs.pretrained import (
    DpoProgramConfig,
    EvaluateProgramConfig,
    RlProgramConfig,
    SftProgramConfig,
    dpo_program,
    evaluate_program,
    rl_program,
    sft_program,
)
from graphs.program import Program
from graphs.smollm2 import SMOLLM2


@dataclass(frozen=True)
class Entry:
    """A ready program.

    Attributes:
        title: one line on what it does.
        config: its settings; every one has a default.
        make: makes it.
        default: settings to start from; ``None`` for those of ``config`` itself.
    """

    title: str
    config: type[BaseModel]
    make: Callable[[Any], Program]
    default: BaseModel | None = None


_OBJECTIVES = ("sft", "dpo")
"""Programs that are asked for as if they were algorithms of reinforcement learning."""


def by_name(algorithm: str, config: Any = None) -> Any:
    """Settings of a program with those of an algorithm in place.

    Args:
        algorithm: its name.
        config: with a section ``rl``; ``None`` for the settings of ``rl_program``.

    Raises:
        LookupError: there is none of this name.
        ValueError: the program does no reinforcement learning, or has no teacher and the algorithm asks one.
    """
    config = RlProgramConfig() if config is None else config
    if algorithm in _OBJECTIVES:
        raise LookupError(
            f"expected one of {', '.join(ALGORITHMS)}, got '{algorithm}', in --algorithm; it learns from a file and no reward, "
            f"and is a program of its own: headrace run {algorithm}"
        )
    if algorithm not in ALGORITHMS:
        near = difflib.get_close_matches(algorithm, ALGORITHMS, 1)
        hint = f"did you mean '{near[0]}'?" if near else "headrace --help lists what each does"
        raise LookupError(f"expected one of {', '.join(ALGORITHMS)}, got '{algorithm}', in --algorithm; {hint}")
    if not hasattr(config, "rl"):
        raise ValueError(
            f"expected a program of reinforcement learning, got one with {type(config).__name__}, in --algorithm; leave it out"
        )
    rl = ALGORITHMS[algorithm].change(config.rl)
    if rl.teacher is not None and not isinstance(config, RlProgramConfig):
        raise ValueError(
            f"expected a program that can name a teacher, got one with {type(config).__name__}, with --algorithm {algorithm}; "
            f"headrace run {algorithm} --model PATH --policy.teacher PATH"
        )
    return config.model_copy(update={"rl": rl})


CATALOGUE: Mapping[str, Entry] = {
    "calculator": Entry("a small policy learns to use a calculator, from scratch", CalculatorConfig, calculator),
    "smollm2": Entry("a pretrained SmolLM2-135M learns mental arithmetic", RlProgramConfig, rl_program, SMOLLM2),
    **{
        name: Entry(f"a pretrained model learns your tasks: {algorithm.title}", RlProgramConfig, rl_program, by_name(name))
        for name, algorithm in ALGORITHMS.items()
    },
    "sft": Entry("a pretrained model learns from your demonstrations", SftProgramConfig, sft_program),
    "dpo": Entry("a pretrained model learns from your preferences", DpoProgramConfig, dpo_program),
    "evaluate": Entry("a pretrained model answers held-out tasks", EvaluateProgramConfig, evaluate_program),
}


def starting_from(entry: Entry, arguments: list[str]) -> tuple[BaseModel | None, list[str]]:
    """Settings that a command line starts from, ``--algorithm NAME`` looked up, and the arguments beside it.

    Raises:
        LookupError: there is no such algorithm.
        ValueError: the name is missing, or the program cannot do it.
    """
    at = next((at for at, argument in enumerate(arguments) if argument.partition("=")[0] == "--algorithm"), None)
    if at is None:
        return entry.default, arguments
    _, equals, value = arguments[at].partition("=")
    stop = at + 1 if equals else at + 2
    if not equals and stop > len(arguments):
        raise ValueError("expected a name, got nothing, in --algorithm; --algorithm dapo, for example")
    name = value if equals else arguments[at + 1]
    return by_name(name, entry.default or entry.config()), arguments[:at] + arguments[stop:]


def find(name: str) -> Entry:
    """Look a program up.

    Raises:
        LookupError: there is none of this name; the nearest is named.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    near = difflib.get_close_matches(name, CATALOGUE, 1)
    hint = f"did you mean '{near[0]}'?" if near else "for a graph of your own, give path/to/file.py:function"
    raise LookupError(f"expected one of {', '.join(CATALOGUE)}, got '{name}'; {hint}")

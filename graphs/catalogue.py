"""Names of the ready programs: the only place where a name becomes a class."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from graphs.calculator import CalculatorConfig, calculator
from graphs.pretrained import (
    EvaluateProgramConfig,
    RlProgramConfig,
    SftProgramConfig,
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


CATALOGUE: Mapping[str, Entry] = {
    "calculator": Entry("a small policy learns to use a calculator, from scratch", CalculatorConfig, calculator),
    "smollm2": Entry("a pretrained SmolLM2-135M learns mental arithmetic", RlProgramConfig, rl_program, SMOLLM2),
    "grpo": Entry("a pretrained model learns your tasks", RlProgramConfig, rl_program),
    "sft": Entry("a pretrained model learns from your demonstrations", SftProgramConfig, sft_program),
    "evaluate": Entry("a pretrained model answers held-out tasks", EvaluateProgramConfig, evaluate_program),
}


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

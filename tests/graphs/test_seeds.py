"""One seed for a run: what follows from it, and what has a number of its own."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from graphs.calculator import CalculatorConfig, calculator
from graphs.own_program import OwnConfig
from graphs.pretrained import DpoProgramConfig, EvaluateProgramConfig, RlProgramConfig, SftProgramConfig
from graphs.pretrained_parts import PolicyConfig
from graphs.program import Program
from graphs.scoring_config import ReferenceConfig
from graphs.seeds import seeded
from stages.models.lora import LoraConfig


def seeds_of(config: Any, above: str = "") -> dict[str, int | None]:
    """Every seed of a config, by its path."""
    found = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name == "seed":
            found[f"{above}{name}"] = value
        elif isinstance(value, BaseModel):
            found |= seeds_of(value, f"{above}{name}.")
    return found


@pytest.mark.parametrize(
    "kind", [CalculatorConfig, RlProgramConfig, SftProgramConfig, DpoProgramConfig, EvaluateProgramConfig, OwnConfig]
)
def test_every_seed_that_is_not_given_follows_from_that_of_the_run(kind: Any) -> None:
    """Evaluations draw other numbers than training; which tasks there are is no part of a run's chance."""
    for path, seed in seeds_of(seeded(kind(seed=7))).items():
        assert seed == (0 if path.startswith("tasks") else 8 if "evaluate" in path or "heldout" in path else 7), path


def test_a_seed_that_is_given_is_kept_and_adapters_follow_too() -> None:
    config = RlProgramConfig(seed=7, policy=PolicyConfig(lora=LoraConfig()))
    config = config.model_copy(update={"rl": config.rl.model_copy(update={"seed": 0, "reference": ReferenceConfig()})})
    found = seeds_of(seeded(config))
    assert (found["rl.seed"], found["rl.sampling.seed"], found["policy.lora.seed"]) == (0, 7, 7)


def test_the_last_seed_of_all_has_a_next_one() -> None:
    assert seeds_of(seeded(EvaluateProgramConfig(seed=2**31 - 1)))["evaluate.sampling.seed"] == 0


def told(run: Path) -> tuple[list[str], list[Any]]:
    """(tasks of training in the order they were opened, what the evaluation before it sampled)."""
    rows = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    training = {row["birth"]: row["task"] for row in rows if row["phase"] == "rl"}
    before = [(row["task"], row["messages"]) for row in rows if row["phase"] == "heldout_before"]
    return [training[birth] for birth in sorted(training)], sorted(before, key=str)


@pytest.mark.slow
def test_a_data_seed_changes_the_order_of_tasks_alone_and_a_run_seed_what_is_sampled(
    config: Callable[..., CalculatorConfig], run: Callable[[Program, Path], Mapping[str, Any]], tmp_path: Path
) -> None:
    """S107."""
    one = config()
    one = one.model_copy(update={"rl": one.rl.model_copy(update={"steps": 1})})
    evaluate = one.evaluate.model_copy(update={"sampling": one.evaluate.sampling.model_copy(update={"seed": None})})
    one = one.model_copy(update={"evaluate": evaluate})
    variants = {
        "base": one,
        "data": one.model_copy(update={"rl": one.rl.model_copy(update={"seed": 5})}),
        "run": one.model_copy(update={"seed": 5}),
    }
    for name, settings in variants.items():
        program = calculator(settings)  # an evaluation of the first parameters, and a step from them
        run(dataclasses.replace(program, phases=program.phases[1:3]), tmp_path / name)
    (tasks, before), data, other = (told(tmp_path / name) for name in variants)
    assert data[0] != tasks
    assert data[1] == before
    assert other[0] != tasks
    assert [task for task, _ in other[1]] == [task for task, _ in before]
    assert other[1] != before

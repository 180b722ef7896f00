"""Names of other trainers lead to settings that exist, the page says what the command line says."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from graphs.cli import main
from graphs.coming_from import SECTIONS, as_tables, counterparts_of, told_of
from graphs.pretrained import RlProgramConfig
from graphs.runs.options import Options

PAGE = Path(__file__).parents[2] / "docs" / "coming_from.md"
ROWS = [row for _, section in SECTIONS for row in section]


def settings_of(kind: Any, above: str = "") -> Iterator[str]:
    """Every setting below a config, with its path."""
    for model in models_of(kind):
        for name, field in model.model_fields.items():
            yield f"{above}{name}"
            yield from settings_of(field.annotation, f"{above}{name}.")


def models_of(kind: Any) -> Iterator[type[BaseModel]]:
    if get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            yield from models_of(part)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind


def test_every_setting_of_ours_exists() -> None:
    known = {*settings_of(RlProgramConfig), *(f"options.{field.name}" for field in dataclasses.fields(Options))}
    assert [name for row in ROWS for name in row.ours.split() if name not in known] == []


def test_the_page_has_the_table_that_the_command_line_reads() -> None:
    assert as_tables() in PAGE.read_text()


def test_no_name_stands_twice_for_different_things_of_one_trainer() -> None:
    """Or what is said of it would depend on the order of the table."""
    for trainer in ("tunix", "verl", "trl"):
        names = [name for row in ROWS for name in getattr(row, trainer).split()]
        assert sorted(names) == sorted(set(names)), trainer


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("--num_generations", "--num_generations is --rl.group-size here"),
        ("--num-generations=8", "--num-generations is --rl.group-size here"),
        ("--beta", "--beta is --rl.loss.kl-coefficient here: 0 by default"),
        ("--kl_coef", "--kl_coef is --rl.advantages.kl-coefficient here"),
        ("--actor_rollout_ref.rollout.n", "is --rl.group-size here"),
        ("actor_rollout_ref.rollout.n=8", "actor_rollout_ref.rollout.n is --rl.group-size here"),
        ("+beta=0.1", "+beta is --rl.loss.kl-coefficient here"),
        ("--gradient_accumulation_steps", "is not set here: nothing to set"),
    ],
)
def test_a_name_of_another_trainer_is_told_as_ours(typed: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """S105: on the command line, with exit status 2."""
    assert told in (told_of(typed) or "")
    with pytest.raises(SystemExit) as ended:
        main(["run", "grpo", "--model", "nowhere.gguf", typed, *([] if "=" in typed else ["8"])])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_name_of_no_trainer_is_not_told() -> None:
    assert told_of("--colour") is None
    assert counterparts_of("--") == []

"""Tasks are drawn by the weights of their sources, or by a curriculum, from the command line."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphs.calculator import CalculatorConfig, calculator
from graphs.commands.command_line import read_program
from graphs.drawing import DrawConfig, drawing
from graphs.parts import Parts
from graphs.program import Program, training
from graphs.rl import rl
from graphs.runs.commits import check_saved
from stages.records import Task
from stages.tasks.curriculum import CurriculumConfig


def tasks(**sizes: int) -> list[Task]:
    return [
        Task(f"{name}-{number}", "?", "1", source=name, difficulty=name)
        for name, size in sizes.items()
        for number in range(size)
    ]


def test_sources_are_drawn_by_their_weights() -> None:
    drawn = drawing(DrawConfig(weights={"math": 3, "code": 1}), tasks(math=5, code=50), seed=1)
    assert Counter(drawn.source.draw().source for _ in range(400)) == {"math": 300, "code": 100}


def test_every_source_wants_a_weight_and_every_task_a_difficulty() -> None:
    with pytest.raises(ValueError, match=r"each source of the tasks, code, math; got them for maths, in rl.draw.weights"):
        drawing(DrawConfig(weights={"maths": 1}), tasks(math=1, code=1), 0)
    plain = [msgspec.structs.replace(task, difficulty=None) for task in tasks(math=2)]
    with pytest.raises(ValueError, match=r"a difficulty for each task, got 2 without, such as math-0, math-1, in rl.draw"):
        drawing(DrawConfig(curriculum=CurriculumConfig()), plain, 0)
    with pytest.raises(ValueError, match="got both; leave one out"):
        DrawConfig(weights={"math": 1}, curriculum=CurriculumConfig())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("sums", "products"):
        rows = [{"id": f"{number}", "prompt": f"{name} {number}", "answer": "1"} for number in range(20)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def typed(model: Path, *arguments: str) -> Parts:
    program, _ = read_program("check", ["grpo", "--model", str(model), "--tasks.train", "sums.jsonl", *arguments])
    assert program.parts is not None
    assert all(program.phases[1].make(None).build(quiet=True).spec.nodes)
    return program.parts


def test_several_files_are_mixed_from_the_command_line(files: Path, pretrained_folder: Path) -> None:
    mixed = ("--tasks.also", "products.jsonl", "--rl.draw.weights", "sums", "1", "products", "2")
    assert Counter(task.source for task in typed(pretrained_folder, *mixed).train) == {"sums": 20, "products": 20}
    with pytest.raises(ValueError, match=r"no file, in tasks.also"):
        typed(pretrained_folder, "--tasks.also", "nowhere.jsonl")
    with pytest.raises(ValueError, match=r"beside tasks.also, got none"):
        read_program("check", ["grpo", "--model", str(pretrained_folder), "--tasks.also", "sums.jsonl"])


def with_levels(program: Program) -> Parts:
    assert program.parts is not None
    levels = [
        msgspec.structs.replace(task, difficulty=("easy", "hard")[number % 2])
        for number, task in enumerate(program.parts.train)
    ]
    return dataclasses.replace(program.parts, train=levels)


def test_a_curriculum_is_told_of_every_scored_group_and_can_be_saved(config: Callable[..., CalculatorConfig]) -> None:
    settings = config()
    settings = settings.rl.model_copy(update={"draw": DrawConfig(curriculum=CurriculumConfig(ahead=2))})
    graph = rl(settings, with_levels(calculator(config())))
    plan = graph.build(quiet=True)
    check_saved(plan)
    drawn = graph.draw()
    assert drawn.index("[rewards]") < drawn.index("[observed]") < drawn.index("[advantages]")


@pytest.mark.slow
def test_a_run_with_a_curriculum_trains_and_counts_its_levels(
    config: Callable[..., CalculatorConfig], run: Callable[[Program, Path], Mapping[str, Any]], tmp_path: Path
) -> None:
    program = calculator(config())
    parts = with_levels(program)
    settings = config().rl.model_copy(update={"draw": DrawConfig(curriculum=CurriculumConfig(ahead=2))})
    summary = run(dataclasses.replace(program, parts=parts, phases=(training(settings, parts),)), tmp_path / "run")
    levels = summary["sources"]["arithmetic"]["difficulties"]
    assert {name: level["drawn"] >= 2 for name, level in levels.items()} == {"easy": True, "hard": True}
    assert sum(level["drawn"] for level in levels.values()) >= settings.steps * settings.groups_per_step

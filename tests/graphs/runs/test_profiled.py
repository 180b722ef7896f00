"""``--options.profile``: which steps it is of, what it refuses, and what is in the files."""

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest
from rich.console import Console

from graphs.calculator import calculator
from graphs.commands.run import executed
from graphs.program import Program
from graphs.runs.execute import execute, prepare
from graphs.runs.folder import RunFolder, Sizes
from graphs.runs.options import SavingOptions
from graphs.runs.profiled import profile_of, steps_of
from graphs.runs.progress import BEGINNING, Progress, Spent, Start
from graphs.runs.view import View
from stages.profile import Profile


@pytest.mark.parametrize(("written", "steps"), [("10:12", (10, 12)), ("steps=10:12", (10, 12)), ("3", (3, 3))])
def test_steps_are_written_as_a_first_and_a_last_one(written: str, steps: tuple[int, int]) -> None:
    assert steps_of(written) == steps


@pytest.mark.parametrize("written", ["", "0", "0:3", "5:4", "1-3", "1:2:3", "two"])
def test_what_is_no_range_of_steps_is_refused(written: str) -> None:
    """S105."""
    with pytest.raises(
        ValueError, match=r"expected steps of the trainer from 1 on, as 10:12 or 10, got '.*', in --options\.pro"
    ):
        SavingOptions(profile=written).check()


def test_steps_that_there_are_not_are_refused(config: Callable[..., Any], tmp_path: Path) -> None:
    program = calculator(config())
    assert isinstance(profile_of("2:3", program, tmp_path, BEGINNING), Profile)
    with pytest.raises(ValueError, match=r"expected steps from 1 to 3, got 2:4; choose some that there are, in --options\.pro"):
        profile_of("2:4", program, tmp_path, BEGINNING)
    untrained = dataclasses.replace(program, phases=program.phases[1:2])
    with pytest.raises(ValueError, match="expected a program that trains, got calculator, which has no steps of a trainer"):
        profile_of("1", untrained, tmp_path, BEGINNING)


def gone_on(program: Program, phase: int, step: int) -> Start:
    """A start in the middle of a phase."""
    names = tuple(each.name for each in program.phases)
    return Start(progress=Progress(0, phase, names, step, {}, Spent(), Sizes(0, 0), None, {}, None))


def test_steps_that_a_run_has_taken_are_refused_where_it_is_gone_on_with(config: Callable[..., Any], tmp_path: Path) -> None:
    program = calculator(config())
    assert isinstance(profile_of("2", program, tmp_path, gone_on(program, 0, 30)), Profile), "30 steps of the warm start"
    assert isinstance(profile_of("3", program, tmp_path, gone_on(program, 2, 2)), Profile)
    for start, over in ((gone_on(program, 2, 2), 2), (gone_on(program, 3, 0), 3)):
        with pytest.raises(ValueError, match=f"expected steps after {over}, which the run has taken, got 2:2; choose later"):
            profile_of("2", program, tmp_path, start)


def test_a_second_profile_of_a_run_is_refused_before_anything_is_written(config: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "run" / "profile").mkdir(parents=True)
    (tmp_path / "run" / "profile" / "plugins").touch()
    with pytest.raises(ValueError, match=r"expected no profile in .*/run/profile yet, got one that was taken before; move it"):
        profile_of("2", calculator(config()), tmp_path / "run", BEGINNING)
    with pytest.raises(ValueError, match=r"expected steps from 1 to 3, got 7:7"):
        executed(calculator(config()), RunFolder(tmp_path / "other"), SavingOptions(profile="7"))
    assert not (tmp_path / "other").exists()


def test_a_profile_beside_another_one_is_refused(tmp_path: Path) -> None:
    profile = Profile(tmp_path / "ours", 1, 1)
    profile.armed = True
    with (
        jax.profiler.trace(tmp_path / "theirs"),
        pytest.raises(RuntimeError, match="expected to take the only profile of this"),
    ):
        profile.step_begins(1)
    profile.close()
    assert not (tmp_path / "ours").exists()


@pytest.mark.slow
def test_a_profile_of_a_step_is_on_disk_with_the_names_of_the_trace(config: Callable[..., Any], tmp_path: Path) -> None:
    """Of the second step of the main phase alone, though the warm start has a second step too."""
    program = calculator(config())
    folder = RunFolder(tmp_path / "run")
    plans, options = prepare(program, folder), SavingOptions(profile="2")
    asyncio.run(execute(program, plans, folder, View(Console(quiet=True)), options=options))
    files = [*(tmp_path / "run" / "profile").rglob("*.xplane.pb")]
    assert len(files) == 1
    content = files[0].read_bytes()
    for name in (b"gradient", b"update", b"publish", b"decode", b"prefill"):
        assert name in content, name
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["options"]
    assert "profile" not in saved, "going on with the run takes no second one"

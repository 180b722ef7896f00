import json
from pathlib import Path

import pytest

from graphs.replays.compared import Compared, rows_of

ROW = {"step": 1, "loss": 0.1, "grad_norm": 2.5, "reward_mean": None, "step_s": 3.0, "compilations": 2, "warning": "a"}


def compared(**changes: object) -> tuple[Compared, str]:
    before = Compared("rl", {("rl", 1): {**ROW, "outcomes": 4}})
    return before, before.step({**ROW, **changes}, ("aa", "aa"))


def test_a_step_that_comes_out_the_same_is_equal_whatever_the_clock_said():
    found, line = compared(step_s=9.0, compilations=5, warning="kept in another folder")
    assert line == "rl step 1: loss 0.1, grad norm 2.5, parameters aa: equal"
    assert found.equal
    assert found.report() == "rl: steps compared in every figure: 1, 1 of them to the bit of every parameter, different: none"


def test_the_first_figure_that_differs_is_told_with_all_its_digits():
    found, line = compared(grad_norm=2.5000000000000004, reward_mean=0.5)
    assert line.endswith(": grad_norm was 2.5 and is 2.5000000000000004, and 1 more")
    assert (found.equal, found.num_different) == (False, 1)
    assert found.report().endswith("different: 1")


def test_parameters_that_differ_in_a_bit_differ_though_every_figure_agrees():
    found = Compared("rl", {("rl", 1): ROW})
    assert found.step(dict(ROW), ("aa", "ab")).endswith(": parameters was aa and is ab")
    assert not found.equal


def test_numbers_that_are_not_finite_compare_as_they_are_written():
    found = Compared("rl", {("rl", 1): {**ROW, "loss": "nan"}})
    assert found.step({**ROW, "loss": float("nan")}).endswith(": equal")
    assert "loss was nan and is inf" in found.step({**ROW, "loss": float("inf")})


def test_a_step_the_run_says_nothing_of_is_neither_equal_nor_different():
    found = Compared("rl", {})
    assert found.step(dict(ROW), (None, "aa")).endswith(": not in the run")
    assert not found.equal
    assert found.report().endswith("different: none, not in the run: 1")


def test_rows_are_those_of_the_trainer_by_phase_and_a_torn_end_is_left_out(tmp_path: Path):
    rows = [
        {"phase": "sft", "stage": "trainer", "step": 1, "loss": 1.0},
        {"phase": "rl", "stage": "heldout_scores", "step": 1},
        {"phase": "rl", "stage": "trainer", "warning": "no step"},
        {"phase": "rl", "stage": "trainer", "step": 1, "loss": 0.1 + 0.2},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*map(json.dumps, rows), '{"phase": "rl", "st']))
    found = rows_of(tmp_path)
    assert list(found) == [("sft", 1), ("rl", 1)]
    assert found["rl", 1]["loss"] == 0.1 + 0.2
    assert rows_of(tmp_path / "none") == {}


@pytest.mark.parametrize("digests", [("aa", None), (None, "aa"), (None, None)])
def test_a_step_without_a_digest_is_compared_by_its_figures(digests: tuple[str | None, str | None]):
    found = Compared("rl", {("rl", 1): ROW})
    assert found.step(dict(ROW), digests).endswith(": equal")
    assert (found.num_steps, found.num_digests) == (1, 0)

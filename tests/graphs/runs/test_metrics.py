"""The list of metrics, its page, and what runs report. That they report nothing else is asked of every run in tests/graphs."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from graphs.algorithms import ALGORITHMS
from graphs.rl_config import RlConfig
from graphs.runs.json_rows import decode, encode
from graphs.runs.metrics import METRICS, find, kind_of, numbers, with_tables
from stages.losses.policy import PolicyLoss
from stages.losses.preference import PreferenceLoss
from stages.losses.supervised import SupervisedLoss
from stages.losses.tokens import Loss, Tokens
from stages.train.metrics import Updated, loss_metrics

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
LOSSES: list[Loss] = [
    *(algorithm.change(RlConfig()).loss for algorithm in ALGORITHMS.values()),
    PolicyLoss(kl_coefficient=0.1, dual_clip=2.0), PreferenceLoss(), SupervisedLoss(),
]  # fmt: skip
RARE = {
    "summary: stages.{stage}.lost.{reason}": "members of a group that failed",
    "summary: stages.{stage}.dropped.{reason}": "items that were given up",
    "summary: sources.{source}.difficulties.{difficulty}.{count}": "tasks that say how hard they are",
    "summary: sources.{source}.trained_share": "None where nothing was trained",
    "summary: {evaluation}_detail.pass_at.{k}": "where it is asked for",
    "summary: leftovers.{place}": "of a run that did not complete",
    "step: lost/{source}": "written of a source from its second step on",
}
"""What a sound run of easy tasks need not have."""


def test_the_page_is_written_from_the_list() -> None:
    """To write it: python -m graphs.runs.metrics docs/metrics.md"""
    assert with_tables(PAGE.read_text()) == PAGE.read_text()


def test_no_metric_is_listed_twice_in_a_row_and_each_has_a_unit_and_a_meaning() -> None:
    names = [(metric.row, metric.name) for metric in METRICS]
    assert len(set(names)) == len(names)
    assert [metric.name for metric in METRICS if not metric.unit or not metric.meaning] == []
    assert [metric.meaning for metric in METRICS if metric.meaning.endswith(".") or "|" in metric.meaning] == []


def sums_of(loss: Loss) -> dict[str, float]:
    """What a loss sums, without computing any of it."""
    array, whole = jax.ShapeDtypeStruct((2, 4), jnp.float32), jax.ShapeDtypeStruct((2, 4), jnp.int32)
    fields = dict.fromkeys(Tokens._fields, array) | {"mask": jax.ShapeDtypeStruct((2, 4), jnp.bool_), "segments": whole}
    return dict.fromkeys(jax.eval_shape(loss, Tokens(**fields))[1], 1.0)


def loss_row(loss: Loss) -> set[str]:
    gap = type("Gap", (), {"num": 0})()
    return set(loss_metrics([Updated(0, 1, 1.0, 1.0, 1.0, sums_of(loss), gap, None)]))


@pytest.mark.slow
def test_every_metric_of_the_list_is_reported(finished: Path, evaluated: Path, numbers_in: Callable[[Any], list[str]]) -> None:
    """By a run of reinforcement learning after a warm start, one that is evaluated on its way, and the losses of all others."""
    seen: set[str] = {f"step: {name}" for loss in LOSSES for name in loss_row(loss)}
    seen |= {f"alert: {name}" for name in ("alert", "state", "metric", "value", "of_stage")} | {"warning: warning"}
    for folder in (finished, evaluated):
        for line in (folder / "metrics.jsonl").read_bytes().splitlines():
            row = decode(line)
            seen |= {f"{kind_of(row)}: {name}" for name in row} | {f"every: {name}" for name in row}
        seen |= {f"summary: {name}" for name in numbers_in(json.loads((folder / "summary.json").read_text()))}
        seen |= {"summary: lag_mean", "summary: lag_max"}
        for line in (folder / "episodes.jsonl").read_bytes().splitlines():
            episode = decode(line)
            inner = {f"episode: {part}.{name}" for part in ("parts", "timings") for name in episode[part]}
            seen |= {f"episode: {name}" for name in episode} | inner
    never = {
        f"{metric.row}: {metric.name}"
        for metric in METRICS
        if not any(row == metric.row and metric.matches(name) for row, name in (each.split(": ", 1) for each in seen))
    }
    assert never - set(RARE) - {"summary: heldout"} == set()


@pytest.mark.slow
def test_what_losses_sum_is_in_the_list() -> None:
    assert {name for loss in LOSSES for name in loss_row(loss) if find(name, ("step",)) is None} == set()


def test_a_name_with_a_part_that_differs_is_found_and_others_are_not() -> None:
    found = find("drawn/gsm8k")
    assert found is not None
    assert (found.name, found.unit, found.row) == ("drawn/{source}", "tasks", "step")
    assert find("drawn/") is None
    assert find("stages.rewards.work_share") is not None
    assert find("heldout_pass@8", ("evaluation",)) is not None
    assert find("heldout_pass@8", ("step",)) is None


def test_what_is_not_finite_is_valid_json_and_reads_back_as_it_was() -> None:
    """S43. By a strict reader of JSON, and by ours."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    row = {"stage": "trainer", "loss": math.nan, "grad_norm": math.inf, "kl": -math.inf, "reward_mean": None, "warning": "x"}
    line = encode(row)
    assert json.loads(line, parse_constant=refuse)["loss"] == "nan"
    back = decode(line)
    assert math.isnan(back.pop("loss"))
    assert back == {name: value for name, value in row.items() if name != "loss"}
    assert [(name, value) for name, value in numbers(back)] == [("grad_norm", math.inf), ("kl", -math.inf)]

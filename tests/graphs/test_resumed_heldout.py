"""Training with evaluations beside it and a gate, cut off while one is under way: it ends as one that was not cut off."""

import asyncio
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx
from rich.console import Console

from flow.saving import complete
from flow.saving._points import listeners
from graphs.calculator import CalculatorConfig, calculator
from graphs.heldout_config import HeldoutConfig
from graphs.program import training
from graphs.runs.execute import execute, prepare
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.progress import BEGINNING
from graphs.runs.resuming import find_start
from graphs.runs.view import View
from stages.checkpoint.store import load_arrays, load_parameters, versions
from stages.evaluation.pinned import WEIGHTS
from stages.records import Episode
from stages.tools.delay import DelayConfig
from stages.train.gate import GateConfig
from stages.train.metrics import of_the_machine

pytestmark = pytest.mark.slow

STEPS, TASKS, ATTEMPTS = 4, 8, 2


class Ended(NamedTuple):
    folder: Path
    model: nnx.Module
    parameters: list[np.ndarray]


def length_reward(episode: Episode) -> float:
    """Something to learn for a policy that knows nothing."""
    return float(episode.num_sampled % 3)


def go_on(config: CalculatorConfig, folder: Path) -> Ended:
    made = calculator(config)
    assert made.parts is not None
    parts = dataclasses.replace(made.parts, reward=length_reward)
    parts.load()
    program = dataclasses.replace(made, parts=parts, phases=(training(config.rl, parts),))
    start = find_start(folder) if folder.exists() else BEGINNING
    run_folder = RunFolder(folder, resume=folder.exists())
    plans = prepare(program, run_folder)
    options = SavingOptions(checkpoint_every=1, keep=None)
    asyncio.run(execute(program, plans, run_folder, View(Console(quiet=True)), options=options, start=start))
    return Ended(folder, parts.model, [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(parts.model, nnx.Param))])


@pytest.fixture(scope="module")
def watched(config: Callable[..., CalculatorConfig]) -> CalculatorConfig:
    """Evaluated at each version, which takes longer than a step."""
    base = config()
    heldout = HeldoutConfig(every=1, num_tasks=TASKS, attempts=ATTEMPTS, max_concurrency=4)
    rl = base.rl.model_copy(update={"heldout": heldout, "gate": GateConfig(action="keep_best"), "steps": STEPS})
    return base.model_copy(update={"rl": rl, "delay": DelayConfig(scale_s=0.03, max_s=0.1)})


@pytest.fixture(scope="module")
def whole(watched: CalculatorConfig, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run that was never cut off; beside it, copies of its folder right after each commit."""
    folder = tmp_path_factory.mktemp("watched") / "whole"
    copies = [0]

    def copy(point: str) -> None:
        if point == "commit.renamed":
            copies[0] += 1
            shutil.copytree(folder, folder.with_name(f"cut {copies[0]}"))

    listeners.append(copy)
    try:
        return go_on(watched, folder)
    finally:
        listeners.remove(copy)


def rows(folder: Path, stage: str) -> list[dict[str, Any]]:
    """Rows of a stage in their order, without times."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in row.items() if name != "attempt" and not of_the_machine(name)}
        for row in found
        if row["stage"] == stage
    ]


def test_commits_hold_the_weights_of_the_evaluation_that_is_under_way(whole: Ended) -> None:
    """At most one version behind those of the trainer; none where nothing is being evaluated."""
    found = [commit.folder / "cell weights" for commit in complete(whole.folder / "checkpoints") if commit.manifest.graph]
    assert len(found) == STEPS
    under_way = [folder for folder in found if (folder / WEIGHTS).exists()]
    assert under_way, "the evaluations of this run outlast its steps"
    like = {"parameters": nnx.state(whole.model, nnx.Param)}
    for folder in under_way:
        number = int(folder.parent.name)
        held = [np.asarray(leaf) for leaf in jax.tree.leaves(load_arrays(folder / WEIGHTS, like))]
        before = folder.parent.with_name(f"{number - 1:06}") / "trainer" / "parameters"
        if number > 1:
            trained = jax.tree.leaves(load_arrays(before, like["parameters"]))
            assert all(np.array_equal(one, other) for one, other in zip(held, trained, strict=True))


@pytest.mark.parametrize("cut", range(1, STEPS + 1))
def test_it_has_the_same_rows_scores_and_best_weights(
    cut: int, whole: Ended, watched: CalculatorConfig, tmp_path: Path
) -> None:
    """P6: the row of every step and every evaluation, and the best weights of the gate at the end.

    A row says how many episodes and tokens were counted, so that nobody is counted twice, or left out.
    """
    folder = tmp_path / "cut"
    shutil.copytree(whole.folder.with_name(f"cut {cut}"), folder)
    ended = go_on(watched, folder)
    for stage in ("trainer", "heldout_scores"):
        assert rows(folder, stage) == rows(whole.folder, stage)
    assert [row["version"] for row in rows(folder, "heldout_scores")] == list(range(STEPS + 1))
    for got, expected in zip(ended.parameters, whole.parameters, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert versions(folder / "best")[-1] == versions(whole.folder / "best")[-1]


def test_what_loads_the_run_has_the_best_weights(whole: Ended, watched: CalculatorConfig) -> None:
    """As ``eval``, ``export`` and ``chat`` do: those that the model had at its end."""
    made = calculator(watched)
    assert made.parts is not None
    made.parts.load()
    load_parameters(made.parts.model, whole.folder / "checkpoints")
    for got, expected in zip(jax.tree.leaves(nnx.state(made.parts.model, nnx.Param)), whole.parameters, strict=True):
        np.testing.assert_array_equal(got, expected)

"""The synchronous baseline: the numbers of ``max_lag=0``, on a schedule without overlap."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from graphs.bench.delays import DelaysConfig
from graphs.bench.scripted import WorldConfig, run_scripted, settings_of
from graphs.bench.traced import Traced
from graphs.calculator import CalculatorConfig, calculator
from graphs.grpo_sync import grpo_sync, synchronous
from graphs.rl_config import RlConfig
from graphs.settings import read_settings
from stages.train.metrics import of_the_machine

WORLD = WorldConfig(decode_s=0.01, delays=DelaysConfig(seconds=(0.002, 0.01, 0.05)), load_s=0.01, group_s=0.005, step_s=0.005)
SETTINGS = settings_of(
    WORLD, steps=4, groups_per_step=3, max_concurrency=6, trainer={"row_length": 64, "rows_per_microbatch": 1}
)


def run(settings: RlConfig, folder: Path) -> Traced:
    return asyncio.run(run_scripted(WORLD, settings, folder / f"{settings.barrier} {settings.max_lag}.pftrace"))


@pytest.fixture(scope="module")
def sync(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return run(synchronous(SETTINGS), tmp_path_factory.mktemp("sync"))


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return run(SETTINGS.model_copy(update={"max_lag": 0}), tmp_path_factory.mktemp("streamed"))


def test_the_barrier_is_asked_for_by_a_setting_of_the_command_line() -> None:
    read = read_settings(CalculatorConfig, ["--rl.barrier", "batch"], "headrace run calculator")
    assert (read.rl.barrier, read.rl.max_lag) == ("batch", 0)
    assert RlConfig().barrier == "group"


def test_a_barrier_over_the_batch_with_a_lag_is_refused_and_says_what_to_set() -> None:
    with pytest.raises(ValidationError, match=r"expected max_lag=0 with barrier=batch.*got 2; set max_lag=0, or barrier=group"):
        RlConfig(barrier="batch", max_lag=2)


def test_the_baseline_is_the_same_graph(config: Callable[..., CalculatorConfig]) -> None:
    program = calculator(config())
    assert program.parts is not None
    [phase] = [phase for phase in program.phases if phase.main]
    ours, sync = (graph.build(quiet=True) for graph in (phase.make(None), grpo_sync(config().rl, program.parts)))
    assert list(ours.spec.nodes) == list(sync.spec.nodes)
    assert ours.capacities == sync.capacities
    assert sync.warnings == ours.warnings


@pytest.mark.slow
def test_its_losses_and_all_other_numbers_are_those_without_lag_to_the_bit(sync: Traced, streamed: Traced) -> None:
    def numbers(run: Traced) -> list[dict[str, Any]]:
        return [{name: value for name, value in row.items() if not of_the_machine(name)} for row in run.rows]

    assert len(numbers(sync)) == 4
    assert numbers(sync) == numbers(streamed)
    assert len({row["loss"] for row in sync.rows}) == 4  # so that equal is not all the same
    assert sync.trained_tasks == streamed.trained_tasks


@pytest.mark.slow
def test_all_episodes_of_a_step_end_before_any_of_it_is_trained(sync: Traced, streamed: Traced) -> None:
    """What streams does take a gradient before that, so the same look at a trace can tell the two apart."""
    assert not any(early_gradients(sync))
    assert any(early_gradients(streamed))


@pytest.mark.slow
def test_no_episode_of_the_next_step_begins_before_the_weights_are_in_force(sync: Traced) -> None:
    in_force = [each.at_ns for each in sync.trace.instants if each.name == "in force"]
    begun = episodes(sync)
    assert len(in_force) == 4
    for step in range(1, 4):
        assert all(start >= in_force[step - 1] for start, _ in begun[3 * step : 3 * step + 3])


def episodes(run: Traced) -> list[tuple[int, int]]:
    """When the first member of each group began and its last one ended, by birth."""
    found: dict[int, list[tuple[int, int]]] = {}
    for spans in run.trace.spans.values():
        for index, name in enumerate(spans.names):
            if name == "episodes":
                found.setdefault(int(spans.args(index)["birth"]), []).append((spans.starts_ns[index], spans.ends_ns[index]))
    return [(min(s for s, _ in found[birth]), max(e for _, e in found[birth])) for birth in sorted(found)]


def early_gradients(run: Traced) -> list[bool]:
    """Of each gradient, whether an episode of its step was still under way when it was begun."""
    ends = episodes(run)
    found: list[bool] = []
    for number, spans in run.trace.spans.items():
        if run.trace.tracks[number].name == "trainer/0":
            for index, name in enumerate(spans.names):
                if name == "gradient":
                    step = int(spans.args(index)["step"]) - 1
                    last = max(end for _, end in ends[3 * step : 3 * step + 3])
                    found.append(spans.starts_ns[index] < last)
    assert found
    return found

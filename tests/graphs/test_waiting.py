"""Where the time goes: a slow trainer holds everything before it back, a slow tool makes the trainer wait for input."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Self

import pytest

from flow import Context, Run, Summary
from graphs.calculator import CalculatorConfig, calculator
from graphs.grpo import grpo
from stages.records import Batch, Weights
from stages.tools.delay import DelayConfig
from stages.train.trainer import Trainer

pytestmark = pytest.mark.slow


class SlowTrainer:
    """A real trainer that takes longer over every group."""

    def __init__(self, trainer: Trainer, seconds: float) -> None:
        self._trainer, self._seconds = trainer, seconds

    async def __aenter__(self) -> Self:
        await self._trainer.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._trainer.__aexit__(*exc_info)

    def add(self, batch: Batch, context: Context) -> None:
        time.sleep(self._seconds)
        self._trainer.add(batch, context)

    def finish(self, context: Context) -> Weights:
        return self._trainer.finish(context)


async def run_grpo(config: CalculatorConfig, *, trainer_s: float) -> tuple[Summary, Run]:
    parts = calculator(config).parts
    assert parts is not None
    graph = grpo(config.grpo, parts)
    graph = graph.replace("trainer", SlowTrainer(graph.spec().nodes["trainer"].stage, trainer_s))
    async with parts.engine:
        run = Run(graph.build())
        return await run.finish(), run


def test_a_slow_trainer_keeps_every_depth_bounded_and_is_seen_to_work(config: Callable[..., Any]) -> None:
    settings = config()
    settings = settings.model_copy(update={"grpo": settings.grpo.model_copy(update={"max_lag": 1, "steps": 4})})
    summary, run = asyncio.run(run_grpo(settings, trainer_s=0.15))
    groups_in_flight = 2 * settings.grpo.groups_per_step
    assert summary.nodes["trainer"].high_water <= groups_in_flight
    assert summary.nodes["episodes"].high_water <= run.plan.capacities["members->episodes"].items
    assert summary.nodes["trainer"].shares["work"] > 0.5
    assert summary.nodes["members"].shares["ticket"] > 0.5


def test_a_slow_tool_shows_as_the_trainers_wait_for_input(config: Callable[..., Any]) -> None:
    settings = config(delay=DelayConfig(scale_s=1.0, shape=float("inf"), max_s=1.0))
    summary, _ = asyncio.run(run_grpo(settings, trainer_s=0.0))
    assert summary.nodes["trainer"].shares["input"] > 0.7

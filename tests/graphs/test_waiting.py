"""Where the time goes: a slow trainer holds everything before it back, a slow tool makes the trainer wait for input."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest

from flow import Context, Graph, Run, Summary
from graphs.calculator import calculator
from graphs.rl import rl
from stages.policy import Sample, SampleRequest
from stages.records import Batch, Message, ToolCall, Weights
from stages.rollout.config import EngineConfig
from stages.text.chat import Chat
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


class CallsOnce:
    """A policy without a model: calls the calculator, then answers."""

    context_length = 64
    config = EngineConfig(slots=16)

    def __init__(self, chat: Chat) -> None:
        self._turns = [
            chat.write(Message("assistant", "", (ToolCall("call", "calculator", {"expression": "6*7"}),))),
            chat.write(Message("assistant", "42")),
        ]

    async def sample(self, request: SampleRequest) -> Sample:
        ids = self._turns[request.key[-1]]
        return Sample(ids, np.full(len(ids), -0.5, np.float32), np.zeros(len(ids), np.int32), "stop")

    def release(self, session: str) -> None: ...

    def abort(self, session: str) -> None: ...

    async def load(self, weights: Weights, version: int) -> None: ...


async def summary_of(graph: Graph) -> tuple[Summary, Run]:
    run = Run(graph.build())
    return await run.finish(), run


def test_a_slow_trainer_keeps_every_depth_bounded_and_is_seen_to_work(config: Callable[..., Any]) -> None:
    settings = config()
    training = settings.rl.model_copy(update={"max_lag": 1, "steps": 4})
    parts = calculator(settings).parts
    assert parts is not None
    parts.load()
    graph = rl(training, replace(parts, engine=CallsOnce(parts.chat)))
    graph = graph.replace("trainer", SlowTrainer(graph.spec().nodes["trainer"].stage, 0.15))
    summary, run = asyncio.run(summary_of(graph))
    assert summary.nodes["trainer"].high_water <= 2 * training.groups_per_step
    for name, node in summary.nodes.items():
        (edge,) = graph.spec().inputs(name) or [None]
        assert edge is None or node.high_water <= run.plan.capacities[edge.name].items
    assert summary.nodes["trainer"].shares["work"] > 0.8
    assert summary.nodes["members"].shares["ticket"] > 0.8


def test_a_slow_tool_shows_as_the_trainers_wait_for_input(config: Callable[..., Any]) -> None:
    parts = calculator(config(delay=DelayConfig(scale_s=0.4, shape=float("inf"), max_s=0.4))).parts
    assert parts is not None
    parts.load()
    summary, _ = asyncio.run(summary_of(rl(config().rl, replace(parts, engine=CallsOnce(parts.chat)))))
    assert summary.nodes["trainer"].shares["input"] > 0.7
    assert summary.nodes["episodes"].shares["work"] > 0.7

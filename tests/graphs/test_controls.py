"""The demonstration at its real size: it learns from true rewards, and from nothing else.

One warm start serves all. ``make test`` compares a short run under each condition; ``make soak`` takes all of it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from flow import Run
from graphs.calculator import CalculatorConfig, calculator
from graphs.program import evaluation, training
from graphs.sft import sft
from stages.tasks.arithmetic import DEMONSTRATIONS
from stages.tasks.examples import read_examples

pytestmark = pytest.mark.slow

NUM_TASKS = 1024
"""Held-out episodes of a score: one standard error is 0.015."""


def settings(steps: int | None = None, **changes: Any) -> CalculatorConfig:
    config = CalculatorConfig(**changes)
    rl = config.rl if steps is None else config.rl.model_copy(update={"steps": steps})
    return config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"num_tasks": NUM_TASKS}), "rl": rl})


@pytest.fixture(scope="session")
def warm() -> Any:
    """Parameters after the warm start, as arrays of the host."""
    config = settings()
    parts = calculator(config).parts
    assert parts is not None
    parts.load()
    asyncio.run(Run(sft(config.warm_start, parts, read_examples(DEMONSTRATIONS)).build()).finish())
    return jax.tree.map(np.asarray, nnx.state(parts.model, nnx.Param))


async def gain(config: CalculatorConfig, warm: Any) -> tuple[float, float]:
    """Held-out success before and after GRPO from the warm start."""
    parts = calculator(config).parts
    assert parts is not None
    nnx.update(parts.model, jax.tree.map(jax.numpy.asarray, warm))
    scores: dict[str, Any] = {}
    async with parts.engine:
        for phase in (
            evaluation("before", config.evaluate, parts),
            training(config.rl, parts, shuffled=config.rewards == "shuffled"),
            evaluation("after", config.evaluate, parts),
        ):
            graph = phase.make(None)
            await phase.prepare()
            await Run(graph.build()).finish()
            scores |= phase.result()
    return scores["before"], scores["after"]


def test_a_short_run_learns_from_true_rewards(warm: Any) -> None:
    before, after = asyncio.run(gain(settings(steps=10), warm))
    assert before <= 0.45
    assert after >= before + 0.15


def test_a_short_run_gains_nothing_from_shuffled_rewards(warm: Any) -> None:
    before, after = asyncio.run(gain(settings(steps=6, rewards="shuffled"), warm))
    assert after - before < 0.05


def test_nothing_is_solved_with_the_tool_switched_off(warm: Any) -> None:
    before, after = asyncio.run(gain(settings(steps=4, tool="off"), warm))
    assert max(before, after) < 0.3


@pytest.mark.soak
@pytest.mark.parametrize(
    ("condition", "right"),
    [
        ({}, lambda before, after: before <= 0.45 and after >= 0.90),
        ({"rewards": "shuffled"}, lambda before, after: after - before < 0.05),
        ({"tool": "off"}, lambda before, after: after < 0.3),
    ],
    ids=["true rewards", "shuffled rewards", "tool off"],
)
def test_the_whole_run(warm: Any, condition: dict[str, Any], right: Callable[[float, float], bool]) -> None:
    before, after = asyncio.run(gain(settings(**condition), warm))
    print(f"held-out success {before:.3f} before, {after:.3f} after, with {condition or 'true rewards'}")
    assert right(before, after)

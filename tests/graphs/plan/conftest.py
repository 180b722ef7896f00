"""Times made by hand, and episodes of a known length, for the parts of a tiny calculator."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphs.calculator import calculator
from graphs.parts import Parts
from graphs.plan.times import EngineTimes, Times, TrainerTimes
from graphs.rl_config import RlConfig
from stages.records import Episode, Group, Status, Task, Turn

DECODE_S, PREFILL_S, TURN_S, TOOL_S = 0.01, 0.04, 0.002, 0.3
GROUP_S, GRADIENT_S, FINISH_S = 0.005, 1.0, 0.25
CONTEXT, SAMPLED, ANSWER = 9, 5, 3
"""Tokens of the question, of each of two turns, and of what the tool says between them."""


def spoken(birth: int, member: int) -> Episode:
    """Two turns with a call of a tool between them. No two begin alike, so no prompt is shared."""
    total = CONTEXT + 2 * SAMPLED + ANSWER
    ids = np.arange(total, dtype=np.int32) % 7 + 1
    ids[0], ids[1] = birth % 16, member
    first, second = CONTEXT, CONTEXT + SAMPLED + ANSWER
    mask = np.zeros(total, bool)
    mask[first : first + SAMPLED] = mask[second : second + SAMPLED] = True
    return Episode(
        task=Task("a", "a"), birth=birth, member=member, retry=0, ids=ids, mask=mask,
        logprobs=np.where(mask, -1.0, np.nan).astype(np.float32), versions=np.where(mask, 0, -1).astype(np.int32),
        turns=(
            Turn(first, first + SAMPLED, "stop", 9.0, TOOL_S), Turn(second, second + SAMPLED, "stop", 9.0, None)
        ),
        messages=(), status=Status.FINISHED, reward=float(member % 2),
    )  # fmt: skip


def times_of(group_size: int = 2, num_groups: int = 3, **changes: Any) -> Times:
    groups = [Group(birth, tuple(spoken(birth, member) for member in range(group_size))) for birth in range(num_groups)]
    times = Times(
        groups=groups,
        engine=EngineTimes({8: DECODE_S, 16: DECODE_S}, {4: PREFILL_S, 8: PREFILL_S}, 0.0, 1.0),
        trainer={4: TrainerTimes({(4, 64): GRADIENT_S}, GROUP_S, FINISH_S, 1.0)},
        turn_s=TURN_S,
        late_s=0.0,
        nodes_s={"rewards": 0.0},
        processors=8.0,
    )
    return replace(times, **changes)


@pytest.fixture
def handmade() -> Callable[..., Times]:
    return times_of


@pytest.fixture(scope="session")
def tiny(config: Callable[..., Any]) -> Parts:
    parts = calculator(config()).parts
    assert parts is not None
    return parts


@pytest.fixture
def settings(config: Callable[..., Any]) -> Callable[..., RlConfig]:
    def make(**changes: Any) -> RlConfig:
        one = {"steps": 1, "groups_per_step": 1, "group_size": 2, "max_concurrency": 1, "seed": 0}
        return config().rl.model_copy(update=one | changes)

    return make


@pytest.fixture
def episode_s() -> float:
    """Seconds of an episode with an engine for itself, worked out by hand: in each turn a prefill step and its tokens."""
    return 2 * (TURN_S + PREFILL_S + SAMPLED * DECODE_S) + TOOL_S


@pytest.fixture
def step_s() -> Sequence[float]:
    """Seconds that the trainer takes over a group, and over the end of a step of one micro-batch."""
    return GROUP_S, GRADIENT_S + FINISH_S

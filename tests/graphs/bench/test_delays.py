"""Delays and failures are functions of the task alone, as often as their shares say."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from graphs.bench import delays as module
from graphs.bench.delays import DelaysConfig, FailedAtOnce, FailingEnv, MixedTool, delay_of, fails_at_once
from stages.envs.tool_env import ToolEnv
from stages.records import Task
from stages.tools.calculator import calculator_tool

CONFIG = DelaysConfig()


def test_lengths_come_as_often_as_their_shares_say() -> None:
    count = 20_000
    found = Counter(delay_of(CONFIG, f"task-{n}", n % 4, 0) for n in range(count))
    for seconds, share in zip(CONFIG.seconds, CONFIG.shares, strict=True):
        assert found[seconds] / count == pytest.approx(share, abs=4 * (share * (1 - share) / count) ** 0.5)
    assert CONFIG.mean_s == pytest.approx(0.80 * 0.05 + 0.16 * 0.5 + 0.04 * 5.0)


def test_a_delay_differs_by_task_member_turn_call_and_seed_and_by_nothing_else() -> None:
    def row(**changes: Any) -> list[float]:
        asked = {"task": "a", "member": 0, "turn": 0, "call": 0, "config": CONFIG, **changes}
        return [delay_of(**{**asked, "task": f"{asked['task']}{n}"}) for n in range(200)]

    rows = [row(), row(task="b"), row(member=1), row(turn=1), row(call=1), row(config=DelaysConfig(seed=1))]
    assert row() == row()
    assert all(one != other for at, one in enumerate(rows) for other in rows[at + 1 :])


def test_a_call_waits_for_its_task_member_and_turn_whatever_its_birth_seed_and_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(module.anyio, "sleep", sleep)
    tool = MixedTool(calculator_tool(), CONFIG, "task-7")
    for seed, birth, retry in ((0, 3, 0), (9, 5, 1)):
        answer = asyncio.run(tool.call({"expression": "6*7"}, (seed, birth, 2, retry, 1, 0)))
        assert answer.text == "42"
    assert slept == [delay_of(CONFIG, "task-7", 2, 1)] * 2


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValidationError, match="expected a share for each of 3 lengths, 1 in all; got 2 that add up to 1"):
        DelaysConfig(shares=(0.5, 0.5))


def test_an_episode_that_was_drawn_fails_when_it_is_tried_first_and_not_again() -> None:
    drawn = next(n for n in range(1000) if fails_at_once(0.05, 0, f"t{n}", 1))
    task = Task(f"t{drawn}", "6*7", "42")

    async def reset(member: int, retry: int) -> int:
        opening = await FailingEnv(ToolEnv([calculator_tool()]), 0.05, 0).reset(task, (0, 0, member, retry))
        return len(opening.messages)

    with pytest.raises(FailedAtOnce):
        asyncio.run(reset(1, 0))
    assert asyncio.run(reset(1, 1)) == 1
    share = sum(fails_at_once(0.05, 0, f"t{n}", m) for n in range(2500) for m in range(4)) / 10_000
    assert share == pytest.approx(0.05, abs=0.01)

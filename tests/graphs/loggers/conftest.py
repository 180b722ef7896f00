"""A run as loggers are told of it: rows of two starts, the second after a commit in the middle."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphs.loggers.logger import Told

Row = Mapping[str, Any]


def step(number: int, **figures: Any) -> Row:
    time = f"2026-01-01T00:00:{number:02}.500+00:00"
    return {
        "time": time, "attempt": 0, "phase": "rl", "stage": "trainer", "step": number, "skipped_total": 0, "step_s": 0.25,
        "skipped": None, "reward_mean": number / 10, **figures,
    }  # fmt: skip


def health(seconds: float) -> Row:
    return {
        "time": "2026-01-01T00:00:30+00:00", "attempt": 0, "phase": "rl", "stage": "health", "seconds": seconds,
        "open_groups": 3, "oldest_group_s": None,
    }  # fmt: skip


@pytest.fixture
def steps() -> Callable[..., Row]:
    return step


@pytest.fixture
def healthy() -> Callable[[float], Row]:
    return health


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., Told]:
    def make(attempt: int = 0, rows: Sequence[Row] = (), superseded: Sequence[Row] = ()) -> Told:
        return Told(tmp_path, "it", "calculator", attempt, {"seed": 3}, lambda: rows, lambda: superseded)

    return make

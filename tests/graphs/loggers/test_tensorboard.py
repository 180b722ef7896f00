"""Event files, read back by TensorBoard's own reader."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphs.loggers.logger import Told
from graphs.loggers.tensorboard import open_tensorboard

pytest.importorskip("tensorboardX")
accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_each_number_is_a_scalar_at_its_place_and_time(
    told: Callable[..., Told], steps: Any, healthy: Any, tmp_path: Path
) -> None:
    """S43: what is not finite too."""
    logger = open_tensorboard(told())
    for row in (steps(1), steps(2, reward_mean=math.nan, loss=math.inf), healthy(30.0)):
        logger.row(row)
    logger.close({})
    found = read(tmp_path / "tensorboard" / "rl")
    rewards = found["step/reward_mean"]
    assert rewards[0] == (1, pytest.approx(0.1))
    assert rewards[1][0] == 2
    assert math.isnan(rewards[1][1])
    assert found["step/loss"] == [(2, math.inf)]
    assert found["health/open_groups"] == [(30, 3.0)]
    assert {"step/skipped", "step/stage", "health/oldest_group_s"}.isdisjoint(found)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard" / "rl"))
    events.Reload()
    assert events.Scalars("step/reward_mean")[0].wall_time == 1767225601.5


def test_a_run_that_is_gone_on_with_has_each_step_once(told: Callable[..., Told], steps: Any, tmp_path: Path) -> None:
    """Killed after step 3, gone on with after the commit of step 2; read by one who looked on all the time too."""
    logger = open_tensorboard(told())
    for number in (1, 2, 3):
        logger.row(steps(number))
    logger.close({})
    server = accumulator.EventAccumulator(str(tmp_path / "tensorboard" / "rl"))
    server.Reload()
    again = open_tensorboard(told(attempt=1, rows=[steps(1), steps(2)]))
    again.row(steps(3, reward_mean=0.9))
    again.close({})
    found = read(tmp_path / "tensorboard" / "rl")["step/reward_mean"]
    assert [number for number, _ in found] == [1, 2, 3]
    assert found[2][1] == pytest.approx(0.9)

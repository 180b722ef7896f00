"""A run that its settings end is told from one that failed."""

import pytest

from flow import StageFailed
from stages.train.bad_steps import BadStepError
from stages.train.gate import GateClosed
from stages.train.stop import StopRun, stop_in


@pytest.mark.parametrize("kind", [GateClosed, BadStepError])
def test_a_stop_is_found_under_the_stage_that_raised_it(kind: type[StopRun]) -> None:
    stop = kind("expected less")
    assert stop_in(StageFailed("trainer", (3,), 0, 0, stop)) is stop
    assert stop_in(stop) is stop


def test_a_failure_is_no_stop() -> None:
    assert stop_in(StageFailed("trainer", (3,), 0, 0, OSError("gone"))) is None

"""A stage that computes on the loop keeps everybody waiting: that is told, with its name."""

import asyncio
import logging
import time

import pytest

from flow import Context, Graph, Run
from flow.trace import LoopLag


@pytest.mark.parametrize("lag", [None, LoopLag()])
def test_a_stage_that_holds_the_loop_up_is_named_once_a_minute_at_most(caplog, lag):
    """S6: from 50 ms on; also where nobody measures the loop, at the looks of the stall watch."""

    def compute(value: int, context: Context) -> int:
        time.sleep(0.06)
        return value

    async def wait(value: int, context: Context) -> int:
        await asyncio.sleep(0.001)
        return value

    graph = Graph("late")
    _ = graph.source("a", range(4)) >> graph.stage("compute", compute) >> graph.sink("b", lambda value, context: None)
    _ = graph.source("c", range(4)) >> graph.stage("wait", wait) >> graph.sink("d", lambda value, context: None)
    with caplog.at_level(logging.WARNING, "headrace"):
        asyncio.run(Run(graph.build(), lag=lag, stall_s=0.05).finish())
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("the event loop stood still for ")
    assert "at work on it: " in warning
    assert "compute" in warning
    assert warning.endswith("Put what computes into a plain function on threads: placement=Threads()")

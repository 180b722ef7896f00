"""Attempts without a deadline of their own: half an hour, and no longer."""

import asyncio
import math

import pytest

from flow import Context, Drop, Graph, Run
from flow.testing import Collected, run_virtual


def line(work, **settings) -> tuple[Graph, Collected]:
    got, graph = Collected(), Graph("line")
    _ = graph.source("source", range(4)) >> graph.stage("work", work, workers=2, **settings) >> graph.sink("sink", got)
    return graph, got


@pytest.mark.parametrize(("seconds", "ends"), [(1700, True), (3000, False)])
def test_an_attempt_gets_half_an_hour(seconds, ends):
    """Section 3.6: no wait is without a bound, though others go on meanwhile."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(seconds if value == 1 else 100)
        return value

    graph, got = line(work, on_error=Drop(9, 9))
    summary = run_virtual(Run(graph.build(), stall_s=10_000).finish())
    assert sorted(arrival.value for arrival in got.arrivals) == ([0, 1, 2, 3] if ends else [0, 2, 3])
    assert summary.nodes["work"].dropped == ({} if ends else {"DeadlineExceeded": 1})


def test_many_quick_attempts_of_one_worker_are_not_taken_for_a_long_one():
    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(61)
        return value

    got, graph = Collected(), Graph("line")
    _ = graph.source("source", range(60)) >> graph.stage("work", work) >> graph.sink("sink", got)
    run_virtual(Run(graph.build(), stall_s=10_000).finish())
    assert len(got.arrivals) == 60


def test_an_endless_deadline_lifts_it():
    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(8000 if value == 1 else 0)
        return value

    graph, got = line(work, deadline_s=math.inf)
    run_virtual(Run(graph.build(), stall_s=10_000).finish())
    assert len(got.arrivals) == 4

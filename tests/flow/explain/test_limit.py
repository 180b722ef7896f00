"""What limits a run under way, from two looks at its counts."""

import asyncio
from typing import Any

import pytest

from flow import Context, Graph, Run, Summary
from flow.explain import limit
from flow.testing import Collected, run_virtual


async def looks(graph: Graph, at_s: tuple[float, float]) -> tuple[Summary, Summary]:
    """Two summaries of a run at these virtual times."""
    run = Run(graph.build(quiet=True), stall_s=None)
    whole = asyncio.get_running_loop().create_task(run.finish())
    await asyncio.sleep(at_s[0])
    then = run.summary()
    await asyncio.sleep(at_s[1] - at_s[0])
    now = run.summary()
    await whole
    return then, now


def line(first_s: float, second_s: float, **settings: Any) -> Graph:
    def stage(seconds: float) -> Any:
        async def work(value: int, context: Context) -> int:
            await asyncio.sleep(seconds)
            return value

        return work

    graph = Graph("line", pools={"gpu": 1})
    first = graph.stage("first", stage(first_s), **settings)
    _ = graph.source("numbers", range(100)) >> first >> graph.stage("second", stage(second_s)) >> graph.sink("end", Collected())
    return graph


@pytest.mark.parametrize(("times", "slow"), [((1.0, 0.3), "first"), ((0.3, 1.0), "second")])
def test_the_stage_that_is_always_at_work_is_the_limit(times: tuple[float, float], slow: str) -> None:
    found = limit(*run_virtual(looks(line(*times), (20.0, 40.0))))
    assert found is not None
    assert (found.kind, found.name) == ("stage", slow)
    assert found.share == pytest.approx(1.0, abs=0.01)
    assert found.text == f"{slow} is at work 100% of the time"


def test_workers_that_wait_for_a_pool_make_it_the_limit() -> None:
    found = limit(*run_virtual(looks(line(1.0, 0.3, workers=4, needs={"gpu": 1}), (20.0, 40.0))))
    assert found is not None
    assert (found.kind, found.name) == ("pool", "first")


def test_only_the_time_between_the_looks_counts() -> None:
    """A run that starts slowly and then goes on at another place: what is over is no limit any more."""

    async def warming(value: int, context: Context) -> int:
        await asyncio.sleep(50.0 if value == 0 else 0.1)
        return value

    async def steady(value: int, context: Context) -> int:
        await asyncio.sleep(1.0)
        return value

    graph = Graph("line")
    _ = (
        graph.source("numbers", range(60))
        >> graph.stage("a", warming)
        >> graph.stage("b", steady)
        >> graph.sink("c", Collected())
    )
    then, now = run_virtual(looks(graph, (60.0, 90.0)))
    found = limit(then, now)
    assert found is not None
    assert found.name == "b"


def test_without_any_time_in_between_nothing_limits() -> None:
    then, _ = run_virtual(looks(line(1.0, 0.3), (20.0, 40.0)))
    assert limit(then, then) is None

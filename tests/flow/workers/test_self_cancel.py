"""A stage that cancels the task it runs in, as a client that misuses its scopes does."""

import asyncio

import pytest

from flow import Context, Drop, Graph, Run, StageFailed
from flow.testing import run_virtual


def line(work, **settings) -> tuple[Graph, list]:
    got: list = []
    graph = Graph("line")
    stage = graph.stage("stage", work, **settings)
    _ = graph.source("source", range(6)) >> stage >> graph.sink("sink", lambda value, context: got.append(value))
    return graph, got


async def cancel_itself(value: int, context: Context) -> int:
    task = asyncio.current_task()
    assert task is not None
    if value == 3:
        task.cancel()
    await asyncio.sleep(1)
    return value


def test_an_item_whose_attempts_are_cancelled_again_and_again_has_failed():
    """S9, S15: by the policy of the stage, after a bound; nobody tells such a cancel from one that comes from outside."""
    graph, got = line(cancel_itself, on_error=Drop())
    summary = run_virtual(Run(graph.build()).finish())
    assert (sorted(got), summary.balanced) == ([0, 1, 2, 4, 5], True)
    assert (summary.nodes["stage"].dropped, summary.nodes["stage"].given_back) == ({"CancelledInside": 1}, 100)


@pytest.mark.parametrize("workers", [1, 3])
def test_without_a_policy_it_ends_the_run(workers):
    graph, _ = line(cancel_itself, workers=workers)
    with pytest.raises(StageFailed, match=r"'stage' failed at item 3 \(retry 0, attempt 100\): CancelledInside"):
        run_virtual(Run(graph.build()).finish())


def test_a_run_that_is_stopped_in_the_midst_of_it_is_suspended():
    """A real cancel is never taken for the stage's own, however many came before."""
    runs: list[Run] = []

    async def work(value: int, context: Context) -> int:
        task = asyncio.current_task()
        assert task is not None
        if context.attempt == 100:
            runs[0].suspend()
        else:
            task.cancel()
        await asyncio.sleep(1)
        return value

    graph, got = line(work, on_error=Drop())

    async def main() -> str:
        runs.append(Run(graph.build()))
        return str((await runs[0].finish()).status)

    assert (run_virtual(main()), got) == ("suspended", [])
    assert runs[0].summary().nodes["stage"].dropped == {}

"""The summary for people, and where the time of idle workers is booked."""

import asyncio
import re

import pytest

from flow import Context, Drop, Failed, Graph, Retry, Run
from flow.testing import Collected, run_virtual, simulate


def test_a_summary_reads_as_a_table_with_what_failed():
    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(1)
        if value == 2:
            raise ValueError("no two")
        return value

    graph = Graph("line", pools={"gpu": 1})
    stage = graph.stage("work", work, needs={"gpu": 1}, on_error=Drop())
    _ = graph.source("numbers", range(4)) >> stage >> graph.sink("end", Collected())
    text = str(run_virtual(Run(graph.build()).finish()))
    assert text.splitlines()[0] == "graph line: completed after 4.0 s, every item accounted for"
    assert "  numbers  0 in, 4 out" in text
    assert "  work     4 in, 3 out, 1 ValueError; work 100%" in text
    assert "  pool gpu: 1 units" in text
    assert text.splitlines()[-1] == "  work: ValueError: no two"


@pytest.mark.parametrize("bound", [{"pools": {"api": 1}}, {"rates": {"api": 1.0}}])
def test_workers_behind_the_first_wait_for_what_it_waits_for(bound):
    """Section 3.11: with items waiting and one unit, it is the pool that limits, whoever stands in line."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(1)
        return value

    graph = Graph("line", **bound)
    stage = graph.stage("work", work, workers=8, needs={"api": 1})
    _ = graph.source("numbers", range(40)) >> stage >> graph.sink("end", Collected())
    shares = simulate(graph).summary.nodes["work"].shares
    assert shares["pool"] > 0.7
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("attempts", "then", "retried", "lost", "dropped"),
    [
        (1, "drop", 2, {}, {}),
        (9, "shrink", 2, {"slow": 2}, {}),
        (9, "drop", 2, {"slow": 2, "group dropped": 2}, {"member failed: slow": 2}),
    ],
)
def test_a_barrier_counts_members_issued_again_and_loses_only_those_given_up(attempts, then, retried, lost, dropped):
    """Of two groups of two, each with a member whose first attempts fail."""

    def work(value: int, context: Context) -> int | Failed[int]:
        return Failed(value, "slow") if context.member == 1 and context.retry < attempts else value

    graph = Graph("line")
    numbers = graph.source("numbers", range(2))
    members = graph.repeat("members", numbers, n=2)
    worked = graph.stage("work", work)
    groups = graph.group("groups", worked, missing=Retry(1, then=then))
    _ = numbers >> members >> worked >> groups >> graph.sink("end", Collected())
    barrier = simulate(graph).summary.nodes["groups"]
    assert (barrier.retried, barrier.lost, barrier.dropped) == (retried, lost, dropped)


def test_a_failure_says_where_its_stage_was_declared():
    def work(value: int, context: Context) -> int:
        raise ValueError("broken")

    graph = Graph("line")
    _ = graph.source("numbers", range(4)) >> graph.stage("work", work) >> graph.sink("end", Collected())
    with pytest.raises(Exception, match="broken") as caught:
        run_virtual(Run(graph.build()).finish())
    assert re.fullmatch(r"stage 'work' is declared at test_summary.py:\d+", caught.value.__notes__[-1])


def test_a_run_is_ended_only_with_an_exception():
    graph = Graph("line")
    _ = graph.source("numbers", range(4)) >> graph.sink("end", Collected())
    run = Run(graph.build())
    for wrong in (KeyboardInterrupt(), "text"):
        with pytest.raises(TypeError, match="expected an exception to end the run with"):
            run.abort(wrong)


def test_order_is_kept_by_many_workers_at_a_cost_that_grows_with_the_items():
    """S2: thousands may wait for their turn; each is woken when it comes."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(1 / (1 + value % 7))
        return value

    graph, got = Graph("line"), Collected()
    stage = graph.stage("work", work, workers=1000, order="input")
    _ = graph.source("numbers", range(3000)) >> stage >> graph.sink("end", got)
    run_virtual(Run(graph.build()).finish())
    assert [arrival.value for arrival in got.arrivals] == list(range(3000))


def test_a_summary_tells_how_many_groups_were_opened_which_is_the_oldest_and_which_are_half_filled():
    """Members of group g take g and 10 + g seconds: at 2.5 s three of four have their first, at 10.5 s the first is closed."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(value if context.member == 0 else 10 + value)
        return value

    graph = Graph("groups")
    members = graph.repeat("members", numbers := graph.source("numbers", range(4)), n=2)
    gathered = graph.group("gathered", works := graph.stage("works", work, workers=8), missing="drop")
    numbers >> members >> works >> gathered >> graph.sink("end", Collected())

    async def main() -> list[tuple[int, int | None, int]]:
        run = Run(graph.build(quiet=True))
        task = asyncio.create_task(run.finish())
        seen = []
        for seconds in (2.5, 8.0, 5.0):
            await asyncio.sleep(seconds)
            groups = run.summary().groups["gathered"]
            seen.append((groups.opened, groups.oldest, groups.half_filled))
        await task
        return seen

    assert run_virtual(main()) == [(4, 0, 3), (4, 1, 3), (4, None, 0)]

"""What becomes of one item at one stage: results, failures, retries, deadlines, cancellations, order."""

import asyncio
import threading
from itertools import pairwise

import pytest

from flow import (
    BudgetExceeded,
    Context,
    DeadlineExceeded,
    Drop,
    Emit,
    Failed,
    Filtered,
    Graph,
    Many,
    Retry,
    Run,
    StageFailed,
    Summary,
    Threads,
)
from flow.testing import run_virtual

END_S = 10_000.0
"""Virtual seconds no test needs."""


def line(work, count=6, sink=None, **settings) -> tuple[Graph, list]:
    """Numbers through one stage into a list."""
    got: list = []

    def keep(value: object, context: Context) -> None:
        got.append(value)

    graph = Graph("line")
    source, stage = graph.source("source", range(count)), graph.stage("stage", work, **settings)
    _ = source >> stage >> graph.sink("sink", sink or keep)
    return graph, got


def finish(graph: Graph, seed: int = 0, kill: float = 0.0, **options) -> Summary:
    async def main() -> Summary:
        async with asyncio.timeout(END_S):
            return await Run(graph.build(), **options).finish()

    return run_virtual(main(), seed=seed, kill=kill)


@pytest.mark.parametrize("kill", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(15))
def test_outputs_leave_in_the_order_of_their_inputs_also_when_workers_are_killed(seed, kill):
    """S2, S19: exactly these, in order, whoever was cancelled on the way."""

    async def slow_for_some(value: int, context: Context) -> int:
        await asyncio.sleep((value * 7 % 5) * 0.1)
        return value

    graph, got = line(slow_for_some, count=25, workers=4, order="input")
    summary = finish(graph, seed, kill)
    assert got == list(range(25))
    assert summary.nodes["stage"].taken == 25
    assert kill or not summary.nodes["stage"].given_back


@pytest.mark.parametrize("seed", range(10))
def test_every_item_arrives_once_when_workers_are_killed(seed):
    """S11, S19, S20: routine interruptions lose nothing and double nothing, over edges of one item."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(0.01 * (value % 3))
        return value

    graph, got = line(work, count=30, workers=3)
    finish(graph, seed, kill=0.25)
    assert sorted(got) == list(range(30))


def test_the_first_failure_ends_the_run_with_its_cause():
    """S1, S7, S10: the error is the stage's own, on top, and the run does not look finished."""

    def breaks(value: int, context: Context) -> int:
        if value == 3:
            raise KeyError("no such task")
        return value

    graph, _ = line(breaks)
    with pytest.raises(
        StageFailed, match=r"stage 'stage' failed at item 3 \(retry 0, attempt 0\): KeyError: 'no such task'"
    ) as caught:
        finish(graph)
    assert isinstance(caught.value.__cause__, KeyError)
    assert (caught.value.node, caught.value.path) == ("stage", (3,))


def test_a_failed_sink_ends_the_run():
    def breaks(value: int, context: Context) -> None:
        raise ValueError("full")

    graph, _ = line(lambda value, context: value, sink=breaks)
    with pytest.raises(StageFailed, match="stage 'sink' failed"):
        finish(graph)


def test_one_bad_item_is_dropped_with_its_traceback_and_the_others_arrive():
    """S7: 499 results kept, 1 recorded as failed."""

    def breaks(value: int, context: Context) -> int:
        if value == 321:
            raise ValueError("bad answer")
        return value

    graph, got = line(breaks, count=500, on_error=Drop())
    summary = finish(graph).nodes["stage"]
    assert len(got) == 499
    assert dict(summary.dropped) == {"ValueError": 1}
    assert "bad answer" in summary.failures["ValueError"]
    assert "in breaks" in summary.failures["ValueError"]


def test_a_stage_that_drops_too_much_ends_the_run():
    """S2, S6: a server that is down must not look like an empty stream."""

    def breaks(value: int, context: Context) -> int:
        raise ConnectionError("refused")

    graph, _ = line(breaks, count=100, on_error=Drop(most=5, of=20))
    with pytest.raises(BudgetExceeded) as caught:
        finish(graph)
    assert str(caught.value) == (
        "node 'stage' failed 6 of its last 6 items; expected at most 5 of 20. The last reason was: "
        "ConnectionError: refused. Repair what it calls, or raise Drop(most=5, of=20)."
    )


def test_what_is_filtered_on_purpose_does_not_use_up_the_budget():
    """Neither does an old failure: only the last items count."""

    def work(value: int, context: Context) -> int | Filtered:
        if value % 10 == 0:
            raise ValueError("sometimes")
        return Filtered("dull")

    graph, got = line(work, count=200, on_error=Drop(most=2, of=20))
    summary = finish(graph).nodes["stage"]
    assert got == []
    assert dict(summary.dropped) == {"ValueError": 20, "dull": 180}


def test_a_sink_on_a_thread_settles_what_it_came_to_the_end_with_before_it_is_cancelled():
    """S13: given back, an item that has had its effect outside would have it twice."""
    inside, may_end, written = threading.Event(), threading.Event(), []

    def write(value: int, context: Context) -> None:
        inside.set()
        may_end.wait(10)
        written.append(value)

    graph, _ = line(lambda value, context: value, count=3, sink=write)

    async def main() -> Summary:
        run = Run(graph.with_("sink", placement=Threads()).build())
        task = asyncio.create_task(run.finish())
        await asyncio.to_thread(inside.wait, 10)
        run.suspend()
        may_end.set()
        return await task

    summary = asyncio.run(main()).nodes["sink"]
    assert (written, summary.taken, summary.given_back) == ([0], 1, 0)


def test_a_failure_may_go_on_as_a_value():
    def work(value: int, context: Context) -> int:
        raise ValueError(f"number {value}\nand more")

    graph, got = line(work, count=2, on_error=Emit(lambda value, failure, context: (value, failure.kind, failure.message)))
    finish(graph)
    assert got == [(0, "ValueError", "number 0"), (1, "ValueError", "number 1")]


def test_a_maker_that_fails_itself_is_the_failure_of_the_stage():
    def work(value: int, context: Context) -> int:
        raise ValueError("first")

    def make(value, failure, context):
        raise TypeError("second")

    graph, _ = line(work, on_error=Emit(make))
    with pytest.raises(StageFailed, match="TypeError: second") as caught:
        finish(graph)
    assert caught.value.__cause__ is not None
    assert isinstance(caught.value.__cause__.__cause__, ValueError)


def test_an_item_is_retried_with_a_higher_number_and_a_doubling_pause():
    """S15: one fails twice then works, one always fails; only the second is given up."""
    seen: list[tuple[int, int, int, float]] = []

    def work(value: int, context: Context) -> int:
        seen.append((value, context.retry, context.attempt, asyncio.get_running_loop().time()))
        if value == 0 and context.retry < 2:
            raise ValueError("not yet")
        if value == 1:
            raise ValueError("never")
        return value

    graph, got = line(work, count=2, on_error=Retry(3, then=Drop(), backoff_s=1.0))
    summary = finish(graph).nodes["stage"]
    assert got == [0]
    assert (summary.retried, dict(summary.dropped)) == (5, {"ValueError": 1})
    assert [entry[:3] for entry in seen] == [(0, r, 0) for r in range(3)] + [(1, r, 0) for r in range(4)]
    assert [round(b[3] - a[3], 6) for a, b in pairwise(seen)] == [1, 2, 0, 1, 2, 4]


def test_only_what_is_worth_a_retry_is_tried_again():
    """S15: a kind that fails the same way every time goes straight to what follows."""
    calls: list[int] = []

    def work(value: int, context: Context) -> int:
        calls.append(value)
        raise OverflowError("always too long") if value else ConnectionError("try later")

    graph, _ = line(work, count=2, on_error=Retry(2, then=Drop(), on=(ConnectionError,)))
    assert finish(graph).nodes["stage"].retried == 2
    assert calls == [0, 0, 0, 1]


@pytest.mark.parametrize("seed", range(10))
def test_a_cancel_gives_no_item_its_retries_anew(seed):
    """S15: the cap holds whatever is killed in between; attempts count executions of one retry."""
    seen: dict[int, list[int]] = {}

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(0.1)
        seen.setdefault(value, []).append(context.retry)
        raise ValueError("always")

    graph, _ = line(work, count=8, workers=2, on_error=Retry(2, then=Drop(), backoff_s=0.5))
    summary = finish(graph, seed, kill=0.15)
    assert all(retries == [0, 1, 2] for retries in seen.values())
    assert dict(summary.nodes["stage"].dropped) == {"ValueError": 8}


def test_a_deadline_is_the_failure_of_its_item_alone():
    """S4, S6, S33: the slot comes back, and the reason is the time and not a cancellation."""

    async def work(value: int, context: Context) -> int:
        assert context.deadline_s == pytest.approx(asyncio.get_running_loop().time() + 5)
        await asyncio.sleep(10**9 if value % 3 == 0 else 1)
        return value

    graph, got = line(work, count=9, workers=2, deadline_s=5, on_error=Drop())
    summary = finish(graph)
    assert sorted(got) == [1, 2, 4, 5, 7, 8]
    assert dict(summary.nodes["stage"].dropped) == {"DeadlineExceeded": 3}
    assert summary.nodes["stage"].given_back == 0
    assert summary.seconds == pytest.approx(
        12
    )  # one worker: 0 to 5, 4, 5 to 7, 6 to 12; the other: 1, 2 to 2, 3 to 7, 7, 8 to 9


def test_what_a_stage_raises_because_of_its_deadline_counts_as_the_deadline():
    """S33: three endings, three reasons."""

    async def work(value: int, context: Context) -> int:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise ConnectionError("torn down") from None
        return value

    graph, _ = line(work, count=1, deadline_s=5)
    with pytest.raises(
        StageFailed, match="DeadlineExceeded: an attempt of 'stage' took longer than its deadline of 5 s"
    ) as caught:
        finish(graph)
    assert isinstance(caught.value.__cause__, DeadlineExceeded)
    assert isinstance(caught.value.__cause__.__cause__, ConnectionError)


def test_a_result_in_spite_of_the_deadline_is_taken():
    async def work(value: int, context: Context) -> int:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return -1
        return value

    graph, got = line(work, count=2, deadline_s=5)
    finish(graph)
    assert got == [-1, -1]


def test_a_cancellation_nobody_asked_for_is_the_failure_of_its_item():
    """S9: some clients let a timeout surface as a cancellation."""

    async def work(value: int, context: Context) -> int:
        if value == 2:
            raise asyncio.CancelledError("client timeout")
        return value

    graph, got = line(work, count=4, on_error=Drop())
    summary = finish(graph)
    assert got == [0, 1, 3]
    assert dict(summary.nodes["stage"].dropped) == {"CancelledInside": 1}


def test_a_stage_that_swallows_a_cancel_is_stopped_all_the_same():
    """S9, S12: a real cancellation is never swallowed, or the run could not be stopped."""
    started: list[int] = []

    async def stubborn(value: int, context: Context) -> int:
        started.append(value)
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return value

    graph, got = line(stubborn, count=5)

    async def main() -> Summary:
        run = Run(graph.build())
        asyncio.get_running_loop().call_later(10, run.suspend)
        async with asyncio.timeout(END_S):
            return await run.finish()

    summary = run_virtual(main())
    assert (started, got, summary.status) == ([0], [], "suspended")
    assert summary.nodes["stage"].given_back == 1


def test_many_outputs_are_numbered_and_none_at_all_is_fine():
    paths: list[tuple[int, ...]] = []

    async def spread(value: int, context: Context) -> Many[int]:
        return Many([value] * value)

    def look(value: int, context: Context) -> None:
        paths.append(context.path)

    graph, _ = line(spread, count=4, sink=look)
    finish(graph)
    assert paths == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_what_is_marked_as_failed_goes_on_outside_groups():
    graph, got = line(lambda value, context: Failed(-value, "poor"), count=3)
    finish(graph)
    assert got == [0, -1, -2]


def test_an_exception_may_be_a_value():
    """What a stage returns is its result, whatever it is."""
    error = ValueError("an example")
    graph, got = line(lambda value, context: error, count=1)
    finish(graph)
    assert got == [error]

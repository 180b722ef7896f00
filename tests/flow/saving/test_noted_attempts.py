"""Whatever an attempt came to, it stands after a kill as it was, with its counts; no code of the user runs again for it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flow import (
    BudgetExceeded,
    BuildError,
    Collect,
    Context,
    Drop,
    Emit,
    Failed,
    Filtered,
    Graph,
    Inline,
    Items,
    Many,
    Retry,
    Run,
    StageFailed,
    Summary,
    Threads,
)
from flow.saving import Begun, Commits, Forgiven, Journal, Made, Saving, Step, read_journal
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor
from flow.trace import PerfettoWriter, read_trace

LAST = 20
"""Inputs are numbers below it."""


class Dead(Exception):
    """The process is dead."""


class Kept:
    """A sink of one step that keeps what it was given, and takes its time."""

    def __init__(self) -> None:
        self.values: list[int] = []

    async def add(self, value: int, context: Context) -> None:
        await asyncio.sleep(0.5)
        self.values.append(value)

    async def finish(self, context: Context) -> int:
        return len(self.values)

    def state(self) -> None: ...

    def restore(self, state: None) -> None:
        self.values = []


async def life(
    folder: Path,
    work: Any,
    dies_after_s: float | None = None,
    *,
    meanwhile: Callable[[Run], None] = lambda run: None,
    recorder: PerfettoWriter | None = None,
    record: bool = False,
    capacity: int = 4,
    **settings: Any,
) -> tuple[Kept, Summary | None]:
    """Run numbers through a stage up to a time at which all is lost that is not on the disk, or to the end."""
    graph, kept = Graph("numbers"), Kept()
    numbers = graph.source("numbers", range(LAST))
    worked = graph.stage("work", work, **{"workers": 3, **settings})
    sink = graph.sink("kept", kept, collect=Collect(LAST, steps=1, end="short"))
    numbers >> worked >> sink
    graph.edge(worked, sink, durable=True, capacity=Items(capacity))
    with Commits(folder / "checkpoints") as commits, Journal(folder / "journal", record=record) as journal:
        run = Run(graph.build(), saving=Saving(commits, journal=journal), recorder=recorder)
        run.threads = PlayedExecutor

        def die() -> None:
            journal.__exit__(None, None, None)
            run.abort(Dead())

        loop = asyncio.get_running_loop()
        if dies_after_s is not None:
            loop.call_later(dies_after_s, die)
        loop.call_later(3, meanwhile, run)
        try:
            return kept, await run.finish()
        except Dead:
            return kept, None


class Works:
    """Work that counts its executions, each of which takes a second."""

    def __init__(self, outcome: Callable[[int, Context], Any]) -> None:
        self.outcome, self.ended = outcome, Counter[tuple[tuple[int, ...], int]]()
        self.begun = Counter[tuple[tuple[int, ...], int, int]]()

    async def __call__(self, number: int, context: Context) -> Any:
        self.begun[context.path, context.retry, context.attempt] += 1
        await asyncio.sleep(1)
        self.ended[context.path, context.retry] += 1
        return self.outcome(number, context)


def stage_of(works: Works, gives: Any = int) -> Any:
    """A function with annotations of its own."""

    async def work(number: int, context: Context) -> Any:
        return await works(number, context)

    work.__annotations__["return"] = gives
    return work


def raising(error: type[Exception]) -> Callable[[int, Context], int]:
    def outcome(number: int, context: Context) -> int:
        if number % 3 == 0 and context.retry < 1 + number % 2:
            raise error(f"{number} does not work")
        return 100 * number + context.retry

    return outcome


CASES = {
    "plain": (lambda number, context: number, {}),
    "filtered": (lambda number, context: Filtered("odd", "by chance") if number % 2 else number, {}),
    "marked": (lambda number, context: Failed(-number, "odd", "by chance") if number % 2 else number, {}),
    "many": (lambda number, context: Many([number] * (number % 3)), {}),
    "dropped": (raising(OSError), {"on_error": Drop(most=50)}),
    "emitted": (raising(OSError), {"on_error": Emit(lambda number, failure, context: -len(failure.message), most=50)}),
    "tried again": (raising(OSError), {"on_error": Retry(2, backoff_s=0.7)}),
    "tried again, then dropped": (raising(OSError), {"on_error": Retry(1, then=Drop(most=50))}),
    "in order": (lambda number, context: number, {"order": "input"}),
    "one at a time": (lambda number, context: number, {"key": lambda number: number % 4}),
    "with a time": (lambda number, context: number, {"deadline_s": 60}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_an_attempt_came_to_stands_after_kills(tmp_path, case):
    """P3: each outcome, with the ledger, the budgets and the retries as if it had been made now."""
    outcome, settings = CASES[case]
    works, again = Works(outcome), Works(outcome)
    whole, unbroken = run_virtual(life(tmp_path / "whole", stage_of(works), **settings))
    for dies in (1.5, 2.2, 4.1, None):
        kept, summary = run_virtual(life(tmp_path / "cut", stage_of(again), dies, **settings))
    assert sorted(kept.values) == sorted(whole.values)
    if settings.get("order"):
        assert kept.values == whole.values
    assert again.ended == works.ended
    assert set(again.begun.values()) == {1}
    before, after = unbroken.nodes["work"], summary.nodes["work"]
    assert (after.taken, after.emitted, after.dropped, after.retried) == (
        before.taken,
        before.emitted,
        before.dropped,
        before.retried,
    )
    assert set(after.failures) == set(before.failures)
    assert after.recalled
    assert summary.balanced


@pytest.mark.parametrize("placement", [Inline(), Threads()])
def test_a_stage_that_never_waits_and_one_on_threads_are_noted_too(tmp_path, placement):
    executed: list[int] = []

    def work(number: int, context: Context) -> int:
        executed.append(number)
        return number

    for dies in (1.3, 4.2, None):
        kept, summary = run_virtual(life(tmp_path, work, dies, workers=1, placement=placement))
    assert kept.values == list(range(LAST))
    assert executed == list(range(LAST))
    assert summary.nodes["work"].recalled


def test_a_result_whose_worker_is_cancelled_while_it_waits_for_room_is_not_made_again(tmp_path):
    """P3: in the same process as well, where the item returns to its place."""
    works = Works(lambda number, context: number)

    def cancel_all(run: Run) -> None:
        for hands in run._staff.hands:
            if hands.node.spec.name == "work":
                hands.task.cancel()

    _, summary = run_virtual(life(tmp_path, stage_of(works), meanwhile=cancel_all, capacity=1))
    assert set(works.ended.values()) == {1}
    assert summary.nodes["work"].recalled
    assert summary.nodes["work"].given_back


def test_a_value_of_another_type_than_declared_ends_the_run_at_its_item(tmp_path):
    """B7."""
    wrong = stage_of(Works(lambda number, context: 2**70 if number == 3 else number))
    with pytest.raises(StageFailed, match="a int that msgpack can carry") as caught:
        run_virtual(life(tmp_path, wrong))
    assert caught.value.path == (3,)


def test_failures_of_a_run_that_an_error_ended_are_tried_again_and_results_are_not(tmp_path):
    """A server that was down is up again: what failed meanwhile must not be lost, nor end the next run at once."""
    up = False

    def outcome(number: int, context: Context) -> int:
        if number % 2 and not up:
            raise OSError("the server is down")
        return number

    works = Works(outcome)
    with pytest.raises(BudgetExceeded, match="failed 4 of its last"):
        run_virtual(life(tmp_path, stage_of(works), on_error=Drop(most=3)))
    assert isinstance([*read_journal(tmp_path / "journal")][-1], Forgiven)
    up = True
    kept, summary = run_virtual(life(tmp_path, stage_of(works), on_error=Drop(most=3)))
    assert sorted(kept.values) == list(range(LAST))
    assert summary.nodes["work"].recalled
    assert {count for ((number,), _), count in works.ended.items() if number % 2 == 0} == {1}


def test_where_all_is_recorded_steps_tell_what_they_took_in_order(tmp_path):
    kept, _ = run_virtual(life(tmp_path, stage_of(Works(lambda number, context: number)), record=True))
    records = list(read_journal(tmp_path / "journal"))
    (step,) = [record for record in records if isinstance(record, Step)]
    assert (step.graph, step.sink, step.number) == ("numbers", "kept", 1)
    assert [path for path, _, _ in step.items] == [(value,) for value in kept.values]
    made = {record.path: record for record in records if isinstance(record, Made)}
    begun = {record.path: record for record in records if isinstance(record, Begun)}
    assert set(made) == set(begun) == {(number,) for number in range(LAST)}
    assert made[3,].birth == 3


def test_what_is_recalled_shows_in_the_trace_and_in_the_summary(tmp_path):
    run_virtual(life(tmp_path, stage_of(Works(lambda number, context: number)), 4.2))
    with PerfettoWriter(tmp_path / "run.pftrace") as recorder:
        _, summary = run_virtual(life(tmp_path, stage_of(Works(lambda number, context: number)), recorder=recorder))
    shown = [s for s in read_trace(tmp_path / "run.pftrace").slices if dict(s.args).get("recalled")]
    assert len(shown) == summary.nodes["work"].recalled > 0
    assert f"{len(shown)} recalled" in str(summary)


def test_without_a_journal_a_durable_edge_is_an_edge_like_any_other(tmp_path):
    graph, kept = Graph("numbers"), Kept()
    numbers = graph.source("numbers", range(LAST))
    worked = graph.stage("work", stage_of(Works(lambda number, context: number)))
    sink = graph.sink("kept", kept, collect=Collect(LAST, steps=1))
    numbers >> worked >> sink
    graph.edge(worked, sink, durable=True)

    async def main() -> Summary:
        with Commits(tmp_path) as commits:
            return await Run(graph.build(), saving=Saving(commits)).finish()

    assert run_virtual(main()).nodes["work"].recalled == 0
    assert kept.values == list(range(LAST))


class Counting:
    """A stage with a state."""

    def __init__(self) -> None:
        self.seen = 0

    async def __call__(self, number: int, context: Context) -> int:
        self.seen += 1
        return self.seen

    def state(self) -> int:
        return self.seen

    def restore(self, state: int) -> None:
        self.seen = state


def test_a_stage_with_a_state_is_refused_before_a_durable_edge(tmp_path):
    """B7: what is recalled would leave nothing in it."""
    with pytest.raises(BuildError, match="expected  a stage without a state before a durable edge") as caught:
        run_virtual(life(tmp_path, Counting()))
    assert [(fault.rule, fault.path, fault.got) for fault in caught.value.faults] == [
        ("B7", "numbers.work", "Counting with one")
    ]

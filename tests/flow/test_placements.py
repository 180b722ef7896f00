"""A placement changes nothing a stage can observe but speed: one contract, on the loop, on threads and in processes.

Rules S1, S6, S7. What only processes can do (die, be killed) is in tests/flow/processes.
"""

import asyncio
from collections import Counter as Count
from typing import Any

import pytest
from placed_stages import Counter, Done, Task, act, act_later, die_once

from flow import (
    Collect,
    Context,
    DeadlineExceeded,
    Drop,
    Emit,
    Freshness,
    Gathered,
    Graph,
    Inline,
    Processes,
    Retry,
    Run,
    StageFailed,
    Summary,
    Threads,
)  # fmt: skip
from flow.trace import PerfettoWriter, read_trace

PLACEMENTS = [Inline(), Threads(), Processes()]
WORKS = [act, act_later]

pytestmark = pytest.mark.filterwarnings("default::RuntimeWarning")


class Seen:
    """Rows that stages reported."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def committed(self, node: str, values: Any) -> None: ...

    def reported(self, node: str, row: Any) -> None:
        self.rows.append((node, dict(row)))


def run(work: Any, placement: Any, tasks: list[Task], **settings: Any) -> tuple[list[Done], Summary, list[Any]]:
    got: list[Done] = []

    def keep(value: Done, context: Context) -> None:
        got.append(value)

    graph = Graph("placed", pools={"desk": 1, "seat": 2})
    stage = graph.stage("work", work, placement=placement, **{"workers": 2, **settings})
    _ = graph.source("tasks", tasks) >> stage >> graph.sink("sink", keep)
    seen = Seen()
    summary = asyncio.run(Run(graph.build(), watchers=[seen], stall_s=30).finish())
    return got, summary, seen.rows


def told(summary: Summary) -> tuple[Any, ...]:
    """What must not depend on the placement."""
    node = summary.nodes["work"]
    return node.taken, node.emitted, dict(node.dropped), node.retried, sorted(node.failures), summary.faults, summary.leftovers


@pytest.mark.parametrize("work", WORKS)
def test_every_outcome_is_the_same_wherever_it_is_made(work):
    """Plain, Many, Failed, Filtered, an error with a retry that helps, and one that does not."""
    acts = ["plain", "raise", "raise once", "filter", "mark", "many", "report", "plain"]
    tasks = [Task(number, act) for number, act in enumerate(acts)]
    results = []
    for placement in PLACEMENTS:
        got, summary, rows = run(work, placement, tasks, on_error=Retry(1, then=Drop(9, 9)), needs={"seat": 1})
        results.append((sorted(map(repr, got)), told(summary), rows))
    assert results[0][1][:4] == (8, 8, {"ValueError": 1, "dull": 1}, 2)
    assert results[1:] == results[:1] * 2


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_order_of_the_inputs_is_kept(placement):
    got, _, _ = run(act_later, placement, [Task(number) for number in range(20)], order="input")
    assert [value.number for value in got] == list(range(20))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_error_ends_the_run_with_its_own_class_and_words(placement):
    with pytest.raises(StageFailed, match=r"stage 'work' failed at item 1 .*ValueError: refused 1") as caught:
        run(act, placement, [Task(0), Task(1, "raise")])
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("work", WORKS)
def test_a_deadline_is_the_failure_of_its_item(work, placement):
    if work is act and placement == Inline():
        return  # what blocks the loop blocks the timer too: such code belongs on a thread
    got, summary, _ = run(
        work,
        placement,
        [Task(0), Task(1, "hang"), Task(2)],
        deadline_s=0.3,
        on_error=Emit(lambda value, failure, _: value, 9, 9),
    )
    assert [type(value) for value in got].count(Task) == 1
    assert list(summary.nodes["work"].failures) == [DeadlineExceeded.__name__]


class Trainer:
    """Counts versions."""

    def __init__(self) -> None:
        self.values: list[Done] = []

    def add(self, value: Gathered[Done], context: Context) -> None:
        self.values += value.members

    def finish(self, context: Context) -> str:
        return f"weights {len(self.values)}"


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_members_read_the_cell_and_know_who_they_are(placement):
    graph, trainer = Graph("loop", pools={"desk": 1}), Trainer()
    cell = graph.latest("weights", str)
    tasks = graph.source("tasks", [Task(number) for number in range(20)])
    members = graph.repeat("members", tasks, n=2)
    work = graph.stage("work", act_later, workers=2, reads=cell, placement=placement)
    sink = graph.sink("sink", trainer, collect=Collect(1, steps=3))
    _ = tasks >> members >> work >> graph.group("group", work) >> sink
    graph.feedback(sink, cell, initial="weights 0", freshness=Freshness(0))
    asyncio.run(Run(graph.build(), stall_s=30).finish())
    assert [(v.number, v.path, v.birth, v.member, v.version, v.read) for v in trainer.values] == [
        (n, (n, m), n, m, n, f"weights {2 * n}") for n in range(3) for m in range(2)
    ]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_a_stage_holds_is_open_while_it_works(placement):
    stage = Counter()
    got, _, _ = run(stage, placement, [Task(number) for number in range(4)])
    assert sorted(value.number for value in got) == [0, 1, 2, 3]
    assert not stage.open


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_spans_lie_inside_the_slice_of_their_attempt(placement, tmp_path):
    graph = Graph("placed")
    work = graph.stage("work", act, placement=placement)

    def forget(value: Done, context: Context) -> None: ...

    _ = graph.source("tasks", [Task(0, "report"), Task(1, "report")]) >> work >> graph.sink("sink", forget)
    with PerfettoWriter(tmp_path / "trace") as recorder:
        asyncio.run(Run(graph.build(), recorder=recorder).finish())
    slices = read_trace(tmp_path / "trace").slices
    inside = [each for each in slices if each.name == "inside"]
    assert [each.args for each in inside] == [{"number": 0}, {"number": 1}]
    for each in inside:
        assert any(
            outer.track == each.track
            and outer.name == "work"
            and outer.start_ns <= each.start_ns
            and each.end_ns <= outer.end_ns
            for outer in slices
        )


def test_a_process_that_dies_costs_its_item_an_attempt_and_no_other_anything():
    """The crash is that item's failure, by the policy of the node; the process is replaced."""
    graph, got = Graph("placed"), Count[int]()

    def keep(value: int, context: Context) -> None:
        got[value] += 1

    work = graph.stage("work", die_once, workers=2, placement=Processes(), on_error=Retry(1))
    _ = graph.source("tasks", range(6)) >> work >> graph.sink("sink", keep)
    summary = asyncio.run(Run(graph.build(), stall_s=30).finish())
    assert got == Count(range(6))
    assert summary.nodes["work"].retried == 1
    assert list(summary.nodes["work"].failures) == ["WorkerDied"]

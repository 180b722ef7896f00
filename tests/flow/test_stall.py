"""A run that stopped moving says who waits for what, and whether it can ever end; then it fails rather than hangs."""

import asyncio
import itertools
import logging
import math
import queue
import re

import pytest

from flow import Collect, Context, Drop, Freshness, Gathered, Graph, Items, Retry, Run, Stalled, Summary, Threads
from flow._waits import Waits
from flow.testing import VirtualLoop, run_virtual


async def lock_itself(value: int, context: Context) -> int:
    """Asks for a unit of the pool all of which it holds already."""
    await asyncio.sleep(value)
    async with context.permit("sandbox"):
        return value


async def never_ends(value: int, context: Context) -> int:
    await asyncio.sleep(0 if value < 2 else 10**7)
    return value


def show(value: int, context: Context) -> None:
    """Shows nothing."""


def line(work, **settings) -> Graph:
    graph = Graph("line", pools={"sandbox": 2})
    source, stage, sink = graph.source("source", range(20)), graph.stage("stage", work, **settings), graph.sink("sink", show)
    _ = source >> stage >> sink
    graph.edge(source, stage, capacity=Items(3))
    return graph


def stall(graph: Graph, **options) -> tuple[str, float]:
    """Report of a run that stalls, with the lines of this file left out, and the virtual second in which it came."""
    # Who waits longest depends on who is served first in the same instant, which is the seed's to say.
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed=2)) as runner:
        run = Run(graph.build(), **options)
        with pytest.raises(Stalled) as caught:
            runner.run(run.finish())
        assert run.summary().faults == ()  # nothing was lost: whatever was out is back in its place
        assert [node.input.leased for node in run.state.nodes.values() if node.input is not None and node.input.leased] == []
        return re.sub(r"(test_\w+\.py):\d+", r"\1:N", str(caught.value)), runner.get_loop().time()


def test_a_deadlock_is_told_within_seconds():
    """W1, W3, S2: everybody waits and nothing is on its way, so nobody waits ten minutes for the report."""
    report, second = stall(line(lock_itself, workers=2, needs={"sandbox": 1}))
    assert report.splitlines() == [
        "stalled 2 s: nothing was committed; a deadlock: nobody works and nothing is on its way",
        "  source         1 waits for room on source->stage, longest 3 s",
        "  stage          2 wait for pool sandbox, longest 3 s in lock_itself (test_stall.py:N)",
        "  sink           1 waits for input stage->sink, longest 3 s",
        "  pool sandbox   2/2 held by stage: oldest 3 s in lock_itself (test_stall.py:N); 2 requests wait",
        "  deadlock       stage waits for pool sandbox, held by stage",
    ]
    assert second == pytest.approx(3, abs=1.5)


def test_permits_taken_in_opposite_order_are_a_deadlock_and_the_circle_is_told():
    """W1, W3, S20: each holds what the other waits for."""

    def nested(outer: str, inner: str):
        async def work(value: int, context: Context) -> int:
            async with context.permit(outer):
                await asyncio.sleep(10)
                async with context.permit(inner):
                    return value

        return work

    graph = Graph("two", pools={"cpu": 1, "gpu": 1})
    first, second = graph.stage("first", nested("cpu", "gpu")), graph.stage("second", nested("gpu", "cpu"))
    _ = graph.source("source", itertools.count()) >> first >> second >> graph.sink("sink", show)
    report, _ = stall(graph)
    first_line = report.splitlines()[0]
    assert re.fullmatch(r"stalled 1\d s: nothing was committed; a deadlock: nobody works and nothing is on its way", first_line)
    assert [re.sub(r"oldest \d s", "oldest N s", line) for line in report.splitlines()[-3:]] == [
        "  pool cpu       1/1 held by first: oldest N s in work (test_stall.py:N); 1 request waits",
        "  pool gpu       1/1 held by second: oldest N s in work (test_stall.py:N); 1 request waits",
        "  deadlock       first waits for pool gpu, held by second; second waits for pool cpu, held by first",
    ]


def test_two_attempts_of_one_stage_may_deadlock_each_other():
    """W1: the same with two items of one stage."""

    async def work(value: int, context: Context) -> int:
        first, second = ("cpu", "gpu") if value % 2 else ("gpu", "cpu")
        async with context.permit(first):
            await asyncio.sleep(1)
            async with context.permit(second):
                return value

    graph = Graph("one", pools={"cpu": 1, "gpu": 1})
    _ = graph.source("source", range(2)) >> graph.stage("work", work, workers=2) >> graph.sink("sink", show)
    report, _ = stall(graph)
    for pool in ("cpu", "gpu"):  # which worker has which item is the schedule's to say
        assert f"1 waits for pool {pool}, longest 2 s in work (test_stall.py:N)" in report.splitlines()[1]
    assert report.splitlines()[2] == "  sink           1 waits for input work->sink, longest 3 s"
    assert re.fullmatch(r"  deadlock       work waits for pool [cg]pu, held by work", report.splitlines()[-1])


def test_a_slow_call_outside_is_no_deadlock_and_gets_its_time():
    """W2, W3, S6: told apart from a deadlock, with its time and its line; how long it may take is a parameter."""
    report, second = stall(line(never_ends, workers=2, needs={"sandbox": 1}, deadline_s=math.inf), stall_s=1873.0)
    assert report.splitlines() == [
        "stalled 1 873 s: nothing was committed; not a deadlock: see who is in a call outside",
        "  source         1 waits for room on source->stage, longest 1 874 s",
        "  stage          2 in user code, oldest 1 874 s in never_ends (test_stall.py:N)  <- not a deadlock: outside call",
        "  sink           1 waits for input stage->sink, longest 1 874 s",
        "  pool sandbox   2/2 held by stage: oldest 1 874 s in never_ends (test_stall.py:N)  <- not a deadlock: outside call",
    ]
    assert 1873 <= second <= 1876


def test_a_dead_producer_is_named_with_the_line_it_hangs_in():
    """W3, S2: what feeds the source has died, so that it waits for ever; the run does not, nor does its thread hold it."""
    empty: queue.Queue[int] = queue.Queue()

    def poll():
        while True:
            yield empty.get()

    graph = Graph("fed")
    _ = graph.source("source", poll(), placement=Threads()) >> graph.sink("sink", show)
    with pytest.raises(Stalled) as caught:
        asyncio.run(Run(graph.build(), stall_s=0.2, closing_s=0.1).finish())
    report = re.sub(r"py:\d+", "py:N", str(caught.value)).splitlines()
    assert report == [
        "stalled 0 s: nothing was committed; not a deadlock: see who is in a call outside",
        "  source         1 in user code, oldest 0 s in poll (test_stall.py:N)  <- not a deadlock: outside call",
        "  sink           1 waits for input source->sink, longest 0 s",
    ]
    assert re.sub(r"py:\d+", "py:N", caught.value.__notes__[0]) == "leftover tasks: thread of source in poll (test_stall.py:N)"
    empty.put(0)  # lets the thread go


def test_a_pool_of_which_a_permit_was_never_given_back_is_told():
    """W1, W3: who kept it has long ended, so nobody can end the wait of the others."""
    kept = []

    async def keep(value: int, context: Context) -> int:
        permit = context.permit("sandbox", 2)
        await permit.__aenter__()
        kept.append(permit)
        return value

    async def use(value: int, context: Context) -> int:
        return value

    graph = Graph("kept", pools={"sandbox": 2})
    keeper, user = graph.stage("keeper", keep), graph.stage("user", use, needs={"sandbox": 1})
    _ = graph.source("source", range(1)) >> keeper >> user >> graph.sink("sink", show)
    report, _ = stall(graph)
    assert report.splitlines() == [
        "stalled 2 s: nothing was committed; a deadlock: nobody works and nothing is on its way",
        "  user           1 waits for pool sandbox, longest 2 s",
        "  sink           1 waits for input user->sink, longest 2 s",
        "  pool sandbox   2/2 held by workers that have ended: a permit was not given back; 1 request waits",
        "  stuck          user waits for pool sandbox, held by workers that have ended, and nobody is left who could end that",
    ]


def test_a_long_call_is_left_alone_where_nothing_is_bounded():
    async def long(value: int, context: Context) -> int:
        await asyncio.sleep(5000 if value == 3 else 0)
        return value

    assert run_virtual(Run(line(long).build(), stall_s=None).finish()).seconds == pytest.approx(5000)
    graph = line(long, deadline_s=math.inf)
    assert run_virtual(Run(graph.build(), stall_s=6000).finish()).seconds == pytest.approx(5000)


def test_the_pause_before_a_retry_is_no_deadlock():
    def work(value: int, context: Context) -> int:
        if context.retry == 0:
            raise ValueError("again")
        return value

    graph = line(work, on_error=Retry(1, then=Drop(), backoff_s=60))
    assert run_virtual(Run(graph.build()).finish()).nodes["stage"].retried == 20


def test_a_wait_that_a_deadline_will_end_is_no_deadlock_yet():
    """W1: timers move. The report of a run that stalls before calls it by its name all the same."""
    graph = line(lock_itself, workers=2, needs={"sandbox": 1}, deadline_s=50, on_error=Drop(), budget=None)
    graph = graph.with_("stage", on_error=Drop(most=100, of=100))
    assert run_virtual(Run(graph.build()).finish()).nodes["stage"].dropped["DeadlineExceeded"] > 0
    report, second = stall(graph, stall_s=20.0)
    assert report.splitlines()[-1] == "  deadlock       stage waits for pool sandbox, held by stage"
    assert second >= 20


def test_a_task_of_a_stage_that_waits_for_a_permit_beside_one_that_works_is_no_deadlock():
    """The stage's own tasks share one lane: as long as the stage is in user code, nobody knows that it cannot go on."""

    async def both(value: int, context: Context) -> int:
        async def use(seconds: float) -> None:
            async with context.permit("sandbox", 2):
                await asyncio.sleep(seconds)

        await asyncio.gather(use(30), use(30))
        return value

    assert run_virtual(Run(line(both).build()).finish()).seconds == pytest.approx(20 * 60)


def test_the_members_that_groups_lack_are_in_the_report():
    """W3, S4: how many, and where each of them is."""

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(10**7 if context.member >= 2 else 1)
        return value

    graph = Graph("g", pools={"sandbox": 5})
    tasks = graph.source("tasks", range(3))
    members = graph.repeat("members", tasks, n=4)
    stage = graph.stage("work", work, workers=9, needs={"sandbox": 1})
    groups = graph.group("groups", stage)

    def take(group: Gathered[int], context: Context) -> None:
        """Takes all."""

    _ = tasks >> members >> stage >> groups >> graph.sink("sink", take)
    report, _ = stall(graph, stall_s=50.0)
    assert "  groups         holds 3 open groups; 6 members missing: 5 in work, 1 waiting for pool 'sandbox'" in report
    assert "tasks " not in report  # it has ended and waits for nothing


def test_a_part_that_is_stuck_is_told_once_while_the_rest_works_on(caplog):
    """W1, W3: as a warning and in the trace; the run goes on as long as anything moves, and then it fails."""
    graph = line(lock_itself, workers=2, needs={"sandbox": 1})

    async def work(value: int, context: Context) -> int:
        await asyncio.sleep(5)
        return value

    _ = graph.source("more", range(20)) >> graph.stage("work", work) >> graph.sink("end", show)
    recorder = Instants()
    with caplog.at_level(logging.WARNING, "headrace"):
        report, second = stall(graph, recorder=recorder)
    assert second == pytest.approx(102, abs=3)
    assert [record.getMessage() for record in caplog.records] == [
        "a part of the graph can never move again, while the rest works on: sink, source, stage; "
        "deadlock: stage waits for pool sandbox, held by stage"
    ]
    assert [name for name, _ in recorder.instants] == [
        "a part is stuck", "stalled", "stuck", "stuck", "stuck",
    ]  # fmt: skip
    assert [args["node"] for _, args in recorder.instants[2:]] == ["source", "stage", "sink"]
    assert recorder.instants[3][1] == {"node": "stage", "waits for": "pool sandbox", "workers": 2}
    assert recorder.instants[1][1]["why"] == report.splitlines()[0]
    assert re.sub(r"py:\d+", "py:N", recorder.instants[1][1]["report"]) == report


@pytest.mark.parametrize("seed", range(3))
def test_who_is_called_stuck_is_stuck(seed):
    """W1: no false alarm in a run that comes to its end, with pools, groups, tickets, pauses, order, kills, at any moment."""

    async def play(value: int, context: Context) -> int:
        async with context.permit("engine"):
            await asyncio.sleep(0.1 * (value % 5))
        if value % 7 == 3 and context.retry == 0:
            raise ValueError("again")
        return value

    class Learner:
        def add(self, value: Gathered[int], context: Context) -> None: ...

        async def finish(self, context: Context) -> int:
            await asyncio.sleep(0.3)
            return 0

    async def load(value: int, version: int) -> None:
        await asyncio.sleep(0.7)

    graph = Graph("whole", pools={"sandbox": 3, "engine": 1})
    cell = graph.latest("weights", int, load=load)
    tasks = graph.source("tasks", itertools.count())
    members = graph.repeat("members", tasks, n=3)
    retry = Retry(2, then=Drop(), backoff_s=0.5)
    stage = graph.stage("play", play, workers=4, needs={"sandbox": 1}, on_error=retry, reads=cell, deadline_s=50)
    check = graph.stage("check", lambda value, context: value, workers=2, order="input")
    learner = graph.sink("learn", Learner(), collect=Collect(2, steps=6))
    _ = tasks >> members >> stage >> check >> graph.group("groups", check) >> learner
    graph.feedback(learner, cell, initial=0, freshness=Freshness(max_lag=1))

    async def main() -> tuple[Summary, int]:
        run, looks = Run(graph.build()), 0
        task = asyncio.create_task(run.finish())
        while True:
            await asyncio.sleep(0.03)
            if run.summary().status is not None or task.done():
                return await task, looks
            waits = Waits(run.state, run._staff.hands, bool(run._loading.under_way))
            assert [(w.name, w.doing, w.detail) for w in waits.stuck(deadlines=False)] == []
            looks += 1

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed, 0.02)) as runner:
        summary, looks = runner.run(main())
    assert summary.nodes["learn"].emitted == 6
    assert looks > 50


class Instants:
    """A recorder that keeps instants."""

    def __init__(self) -> None:
        self.instants: list[tuple[str, dict]] = []

    def track(self, name, parent=None, *, rank=0) -> int:
        return 0

    def counter(self, name, unit="", parent=None) -> int:
        return 0

    def begin(self, track, name, at_ns, args=None, flows=()) -> None: ...

    def end(self, track, at_ns) -> None: ...

    def series(self, track, marks, about) -> None: ...

    def instant(self, track, name, at_ns, args=None, flows=()) -> None:
        self.instants.append((name, dict(args or {})))

    def count(self, track, value, at_ns) -> None: ...

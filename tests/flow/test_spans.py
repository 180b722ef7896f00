"""What any code under an attempt shows of itself is in the trace: inside its attempt, whoever calls and wherever it runs."""

import asyncio
import math
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from showing_stages import hold_permits, look, show, show_amiss, show_beside, show_later, tell_of_a_request

import flow
from flow import Context, DeadlineExceeded, Drop, Graph, Inline, Processes, Run, Threads
from flow._spans import UNSEEN
from flow.testing import simulate
from flow.trace import PerfettoWriter, Slice, Trace, read_trace


def traced(folder: Path, work: Any, items: int = 2, **settings: Any) -> Trace:
    graph = Graph("shown")

    def forget(value: int, context: Context) -> None: ...

    _ = graph.source("numbers", range(items)) >> graph.stage("work", work, **settings) >> graph.sink("end", forget)
    with PerfettoWriter(folder / "run.pftrace") as recorder:
        asyncio.run(Run(graph.build(), recorder=recorder, stall_s=30).finish())
    return read_trace(folder)


def named(trace: Trace, name: str) -> list[Slice]:
    return [each for each in trace.slices if each.name == name]


def lies_in(inner: Slice, outer: Slice) -> bool:
    in_time = outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns
    return inner.track == outer.track and inner.depth > outer.depth and in_time


@pytest.mark.parametrize("work", [show, show_later])
@pytest.mark.parametrize(
    "placement", [Inline(), Threads(), pytest.param(Processes(), marks=pytest.mark.slow)], ids=["loop", "threads", "processes"]
)
def test_spans_counters_and_moments_need_no_context_wherever_the_stage_runs(placement, work, tmp_path):
    trace = traced(tmp_path, work, placement=placement)
    works, outer, inner = named(trace, "work"), named(trace, "outer"), named(trace, "inner")
    assert [each.args for each in outer] == [{"number": 0}, {"number": 1}]
    for attempt, one, two in zip(works, outer, inner, strict=True):
        assert lies_in(one, attempt)
        assert lies_in(two, one)
    assert [(each.track, each.args) for each in trace.instants if each.name == "half"] == [
        (works[0].track, {"kind": "plain" if work is show else "later"})
    ] * 2
    (counter,) = (number for number, track in trace.tracks.items() if track.name == "found")
    assert list(trace.counters[counter].values) == [0.0, 1.0]
    assert trace.tracks[counter].unit == "things"
    assert trace.tracks[counter].parent == trace.tracks[works[0].track].parent


@pytest.mark.parametrize("placement", [Inline(), pytest.param(Processes(), marks=pytest.mark.slow)], ids=["loop", "processes"])
def test_what_is_shown_amiss_costs_neither_the_attempt_nor_the_trace(placement, tmp_path):
    trace = traced(tmp_path, show_amiss, items=1, placement=placement)
    (span,) = named(trace, "\\ud800")
    assert math.isnan(span.args.pop("gap"))
    texts = {"big": str(10**30), "lone": "\\ud800", "none": "None", "bad": "<Unprintable that gives no text>"}
    assert span.args == texts
    (counter,) = (number for number, track in trace.tracks.items() if track.name == "amiss")
    assert [str(value) for value in trace.counters[counter].values] == ["nan", "nan", "2.5"]
    assert [(each.args, each.flows) for each in trace.instants if each.name == "amiss"] == [({"at": "x"}, ())]


@pytest.mark.slow
@pytest.mark.parametrize("placement", [Inline(), Processes()], ids=["loop", "processes"])
def test_what_overlaps_has_tracks_of_its_own_and_its_true_length(placement, tmp_path):
    """S101: four at once, and the lengths in the trace are those that were logged."""
    trace = traced(tmp_path, show_beside, items=3, placement=placement)
    beside = [each for name in ("task 0", "task 1", "thread 0", "thread 1") for each in named(trace, name)]
    assert len(beside) == 12
    for name in {each.name for each in beside}:
        logged = [each.args["seconds"] for each in trace.instants if each.name == "logged" and each.args["of"] == name]
        lengths = [(each.end_ns - each.start_ns) / 1e9 for each in named(trace, name)]
        assert lengths == pytest.approx(logged, abs=0.01)
    for one in beside:
        overlapping = [two for two in beside if two.start_ns < one.end_ns and one.start_ns < two.end_ns]
        assert sum(two.track == one.track for two in overlapping) == 1
        assert any(each.start_ns <= one.start_ns and one.end_ns <= each.end_ns for each in named(trace, "all"))
    assert len({each.track for each in beside}) == 4, "tracks are used again"


def test_a_quick_item_that_shows_something_has_a_slice_of_its_own(tmp_path):
    """In a stretch of items that otherwise share one, and what it shows lies inside it."""

    def at_times(number: int, context: Context) -> int:
        return look(number, "rare") if number % 10 == 0 else number

    trace = traced(tmp_path, at_times, items=30)
    outer, works = named(trace, "outer"), named(trace, "work")
    assert [each.args["number"] for each in outer] == [0, 10, 20]
    for each in outer:
        (attempt,) = (work for work in works if lies_in(each, work))
        assert attempt.args["item"] == str(each.args["number"])
        assert "items" not in attempt.args
    assert sum(int(each.args.get("items", 1)) for each in works) == 30


def test_a_source_shows_what_it_does_too(tmp_path):
    class Numbers:
        def __init__(self) -> None:
            self.left = 3

        def draw(self) -> int:
            if not self.left:
                raise StopIteration
            self.left -= 1
            with flow.span("drawing", left=self.left):
                return self.left

    graph = Graph("shown")

    def forget(value: int, context: Context) -> None: ...

    _ = graph.source("numbers", Numbers()) >> graph.sink("end", forget)
    with PerfettoWriter(tmp_path / "run.pftrace") as recorder:
        simulate(graph, recorder=recorder)
    trace = read_trace(tmp_path)
    assert [each.args["left"] for each in named(trace, "drawing")] == [2, 1, 0]
    assert all(any(lies_in(each, attempt) for attempt in named(trace, "numbers")) for each in named(trace, "drawing"))


@pytest.mark.slow
def test_a_span_that_a_thread_leaves_open_ends_with_its_attempt(tmp_path):
    """The thread of an attempt that was given up closes it when others are at work on the same row: theirs is not touched."""
    gate = threading.Event()

    def hang(number: int, context: Context) -> int:
        with flow.span("hangs" if number == 0 else "works", number=number):
            if number == 0:
                gate.wait(5)
            else:
                time.sleep(0.05)
                gate.set()
                time.sleep(0.05)
            return number

    trace = traced(tmp_path, hang, placement=Threads(), deadline_s=0.4, on_error=Drop())
    (hangs,), (works,) = named(trace, "hangs"), named(trace, "works")
    assert hangs.end_ns <= works.start_ns
    assert (works.end_ns - works.start_ns) / 1e9 == pytest.approx(0.1, abs=0.05)
    (overdue,) = (each for each in trace.instants if each.name == "overdue")
    assert (overdue.args["node"], overdue.args["item"]) == ("work", "0")
    assert overdue.args["kind"] == DeadlineExceeded.__name__


def test_arrows_and_details_of_a_span_are_kept(tmp_path):
    def ask(number: int, context: Context) -> int:
        with flow.span("ask", flows=(77, 78), name="of an argument", share=0.5):
            flow.mark("answer", flows=(77,))
        return number

    trace = traced(tmp_path, ask, items=1)
    (asked,) = named(trace, "ask")
    assert (asked.flows, asked.args) == ((77, 78), {"name": "of an argument", "share": 0.5})
    assert [each.flows for each in trace.instants if each.name == "answer"] == [(77,)]


@pytest.mark.parametrize("placement", [Inline(), pytest.param(Processes(), marks=pytest.mark.slow)], ids=["loop", "processes"])
def test_what_is_told_when_it_is_over_lies_where_it_was(placement, tmp_path):
    """S104: of a server that says in its reply how long a request waited."""
    trace = traced(tmp_path, tell_of_a_request, placement=placement)
    for request, queue, answer in zip(*(named(trace, name) for name in ("request", "queue", "answer")), strict=True):
        assert lies_in(queue, request)
        assert lies_in(answer, request)
        assert queue.end_ns - queue.start_ns == pytest.approx(5e6, abs=1e3)
        assert answer.start_ns == pytest.approx(queue.end_ns, abs=1e3)
        assert answer.end_ns - answer.start_ns == pytest.approx(10e6, abs=1e3)
    assert [each.args for each in named(trace, "queue")] == [{"number": 0}, {"number": 1}]


def test_outside_of_any_attempt_and_where_nobody_records_nothing_happens():
    def work(number: int, context: Context) -> int:
        assert flow.span("unseen") is UNSEEN
        with context.span("unseen"):
            flow.count("unseen", 1)
            flow.mark("unseen")
        return number

    assert flow.span("unseen", number=3) is UNSEEN
    graph = Graph("unseen")

    def forget(value: int, context: Context) -> None: ...

    _ = graph.source("numbers", range(3)) >> graph.stage("work", work) >> graph.sink("end", forget)
    simulate(graph)


def test_what_nobody_records_costs_next_to_nothing():
    """The bound is wide, for a loaded machine; an idle one takes about 0.2 microseconds."""

    def spans() -> None:
        for _ in range(2_000):
            with flow.span("unseen"):
                pass

    best_s = 1.0
    for _ in range(7):
        began = time.perf_counter()
        spans()
        best_s = min(best_s, time.perf_counter() - began)
    assert best_s / 2_000 < 3e-6


@pytest.mark.parametrize("placement", [Inline(), pytest.param(Processes(), marks=pytest.mark.slow)], ids=["loop", "processes"])
def test_a_permit_taken_inside_tells_when_it_is_given_back_how_long_it_was_held(placement, tmp_path):
    """Of pools alone: the start that a rate gives is not held. One unit, so the second waits for the first."""
    graph = Graph("shown", pools={"desk": 1, "none": 1}, rates={"starts": 1000})

    def forget(value: int, context: Context) -> None: ...

    work = graph.stage("work", hold_permits, workers=2, placement=placement)
    _ = graph.source("numbers", range(2)) >> work >> graph.sink("end", forget)
    with PerfettoWriter(tmp_path / "run.pftrace") as recorder:
        asyncio.run(Run(graph.build(), recorder=recorder, stall_s=30).finish())
    trace = read_trace(tmp_path)
    held = [each for each in trace.instants if each.name == "permit held"]
    assert [(each.args["pool"], each.args["units"]) for each in held] == [("desk", 1)] * 2
    asked = sorted((each.args["from_s"], each.args["to_s"]) for each in trace.instants if each.name == "asked")
    (first_s, first_end_s), (second_s, second_end_s) = (
        (each.at_ns / 1e9 - each.args["seconds"], each.at_ns / 1e9) for each in held
    )
    (first_from_s, first_to_s), (second_from_s, second_to_s) = asked
    in_order = [first_s, first_from_s, first_to_s, first_end_s, second_s, second_from_s, second_to_s, second_end_s]
    assert all(one < two + 1e-6 for one, two in pairwise(in_order))

"""What an environment in a process shows is in the trace of the run: inside its attempt, at its times, within bounds."""

import asyncio
import importlib
import sys
from pathlib import Path

import pytest

from flow import Drop, Graph, Inline, Processes, Run
from flow.elsewhere import MOST_SHOWN
from flow.trace import PerfettoWriter, Slice, Trace, read_trace

pytestmark = pytest.mark.slow

MODULE = """
import asyncio
import os
import threading
import time

import flow
from flow import Context
from stages.envs.custom import CustomEnv
from stages.envs.environment import Opening
from stages.envs.process_env import ProcessEnv
from stages.records import Message, Task


def shown(name):
    began_s = time.monotonic()
    with flow.span(name, began_s=began_s):
        flow.mark("at", of=name, at_s=time.monotonic())
        with flow.span("inner"):
            flow.count("shown", 1.0, "things")
    flow.mark("over", of=name, at_s=time.monotonic())


class Plain(CustomEnv):
    def reset(self, task, key):
        shown("resetting")
        return "go"

    def step(self, message):
        return self.said(message.content)

    def said(self, what):
        if what == "many":
            for number in range(5_000):
                flow.mark("many", number=number)
        elif what == "die":
            with flow.span("dying"):
                time.sleep(0.01)
                os._exit(3)
        elif what == "beside":
            def beside():
                shown("beside")
            with flow.span("around"):
                threads = [threading.Thread(target=flow_in_thread(beside)) for _ in range(2)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        elif what == "heard":
            from flow._spans import UNSEEN
            return str(flow.span("seen") is not UNSEEN)
        elif what == "later":  # goes on after its step, until the next one
            self.inside, self.go_on = threading.Event(), threading.Event()
            def later():
                with flow.span("outlives"):
                    self.inside.set()
                    self.go_on.wait(10)
                flow.mark("outlived")
            self.late = threading.Thread(target=flow_in_thread(later))
            self.late.start()
            self.inside.wait(10)
        elif what == "now":
            with flow.span("next"):
                self.go_on.set()
                self.late.join()
        else:
            shown("stepping")
        return "heard"

    def score(self):
        shown("scoring")
        return 1.0

    def close(self):
        shown("closing")


def flow_in_thread(function):
    from contextvars import copy_context
    from functools import partial
    return partial(copy_context().run, function)


class Async(Plain):
    async def reset(self, task, key):
        await asyncio.sleep(0)
        return super().reset(task, key)

    async def step(self, message):
        await asyncio.sleep(0)
        return self.said(message.content)

    async def score(self):
        await asyncio.sleep(0)
        return super().score()

    async def close(self):
        super().close()


def make_plain(task):
    return Plain()


def make_async(task):
    return Async()


class Play:
    def __init__(self, make, turns):
        self.make, self.turns = make, turns

    async def __call__(self, number: int, context: Context) -> str:
        env = ProcessEnv(self.make)
        said = ""
        try:
            await env.reset(Task("t", "go"), (0, 0, 0, 0))
            for turn in self.turns:
                said = (await env.step(Message("assistant", turn))).messages[0].content
            await env.score()
        finally:
            await env.close()
        return said


def keep(said: str, context: Context) -> None:
    SAID.append(said)


SAID = []
"""


@pytest.fixture
def played(tmp_path, monkeypatch):
    (tmp_path / "env_that_shows.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("env_that_shows")
    yield module
    del sys.modules["env_that_shows"]


def traced(module, folder: Path, *turns: str, make: str = "make_plain", items: int = 1, **settings) -> Trace:
    graph = Graph("played")
    play = module.Play(getattr(module, make), turns)
    numbers, episodes = graph.source("numbers", range(items)), graph.stage("episodes", play, **settings)
    _ = numbers >> episodes >> graph.sink("end", module.keep)
    with PerfettoWriter(folder / "run.pftrace") as recorder:
        asyncio.run(Run(graph.build(), recorder=recorder, stall_s=60).finish())
    return read_trace(folder / "run.pftrace")


def named(trace: Trace, name: str) -> list[Slice]:
    return [each for each in trace.slices if each.name == name]


def within(inner: Slice, outer: Slice) -> bool:
    return outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns


@pytest.mark.parametrize(
    ("placement", "make"),
    [(Inline(), "make_plain"), (Inline(), "make_async"), (Processes(), "make_plain")],
    ids=["plain", "async", "of a stage that is in a process itself"],
)
def test_what_is_shown_there_lies_in_the_attempt_under_its_names_and_at_its_times(placement, make, played, tmp_path):
    """Times are compared with what the process itself read before, inside and after each span."""
    trace = traced(played, tmp_path, "on", "on", make=make, items=2, placement=placement)
    attempts = named(trace, "episodes")
    assert [each.args["item"] for each in attempts] == ["0", "1"]
    for name, times in (("resetting", 1), ("stepping", 2), ("scoring", 1), ("closing", 1)):
        spans = named(trace, name)
        inside = [each.args["at_s"] for each in trace.instants if each.name == "at" and each.args["of"] == name]
        after = [each.args["at_s"] for each in trace.instants if each.name == "over" and each.args["of"] == name]
        assert len(spans) == len(inside) == len(after) == 2 * times
        for index, (span, at_s, over_s) in enumerate(zip(spans, inside, after, strict=True)):
            attempt = attempts[index // times]
            assert span.track == attempt.track
            assert span.depth == 1
            assert within(span, attempt)
            assert span.args["began_s"] * 1e9 - 1e3 <= span.start_ns <= at_s * 1e9 + 1e3
            assert at_s * 1e9 - 1e3 <= span.end_ns <= over_s * 1e9 + 1e3
    for each in named(trace, "inner"):
        assert each.depth == 2
    (counter,) = (number for number, track in trace.tracks.items() if track.name == "shown")
    assert trace.tracks[counter].unit == "things"
    assert trace.tracks[counter].parent == trace.tracks[attempts[0].track].parent


def test_what_overlaps_there_has_tracks_of_its_own(played, tmp_path):
    trace = traced(played, tmp_path, "beside")
    (attempt,), (around,), beside = named(trace, "episodes"), named(trace, "around"), named(trace, "beside")
    assert around.track == attempt.track
    assert len(beside) == 2
    for each in beside:
        assert within(each, around)
        assert each.track != attempt.track
        assert trace.tracks[each.track].parent == trace.tracks[attempt.track].parent


def test_what_is_shown_without_end_is_left_out_and_counted(played, tmp_path):
    """Of one attempt; the next one has as much room."""
    trace = traced(played, tmp_path, "many", "on", items=2)
    many = [each.args["number"] for each in trace.instants if each.name == "many"]
    before = 5  # of the reset: two moments, two spans, a value
    room = MOST_SHOWN - before
    assert many == [*range(room), *range(room)]
    counts = [each.args["count"] for each in trace.instants if each.name == "left out"]
    after = [5, 5, 5]  # of the other step, of the score, of the close
    assert counts == [5_000 - room, *after] * 2
    assert named(trace, "stepping") == named(trace, "scoring") == []


def test_a_process_that_dies_leaves_what_it_had_shown(played, tmp_path):
    trace = traced(played, tmp_path, "on", "die", on_error=Drop())
    (attempt,), (dying,) = named(trace, "episodes"), named(trace, "dying")
    assert len(named(trace, "resetting")) == len(named(trace, "stepping")) == 1
    assert named(trace, "closing") == []
    assert within(dying, attempt)
    assert dying.end_ns - dying.start_ns >= 10e6


def test_what_outlives_its_step_ends_with_it(played, tmp_path):
    """As a slice it could not lie inside both. A moment of the same thread lies where it happened, in the step after."""
    trace = traced(played, tmp_path, "later", "now")
    (outlives,), (following,) = named(trace, "outlives"), named(trace, "next")
    assert outlives.end_ns <= following.start_ns
    assert len([each for each in trace.instants if each.name == "outlived"]) == 1


def test_where_nobody_records_nothing_is_told(played, tmp_path):
    traced(played, tmp_path, "heard")
    graph = Graph("played")
    play = graph.stage("episodes", played.Play(played.make_plain, ("heard",)))
    _ = graph.source("numbers", range(1)) >> play >> graph.sink("end", played.keep)
    asyncio.run(Run(graph.build(), stall_s=60).finish())
    assert played.SAID == ["True", "False"]

"""Faults of others on going on with a run, each in the smallest graph that could have it."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from flow import Collect, Context, Drop, Freshness, Gathered, Graph, Items, Retry, Run, Summary
from flow.saving import Commits, Saving
from flow.testing import run_virtual

Lags = list[tuple[int, int, int | None]]


class Learner:
    """Tells of each item its birth, the step that took it, and how old it was then."""

    def __init__(self, lags: Lags, step_s: float) -> None:
        self._lags, self._step_s, self._steps = lags, step_s, 0

    def add(self, value: Gathered[int] | int, context: Context) -> None:
        self._lags.append((self._steps + 1, context.birth, context.lag))

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(self._step_s)
        self._steps += 1
        return self._steps

    def state(self) -> int:
        return self._steps

    def restore(self, state: int) -> None:
        self._steps = state


def cut_once(folder: Path, make: Callable[[Learner], Graph], step_s: float, cut_s: float) -> tuple[Lags, Lags, Summary]:
    """Cut a run off, and go on with it: what its sink took before, what after, and how it ended."""

    async def main(lags: Lags, cut_s: float) -> Summary | None:
        with Commits(folder) as commits:
            commits.on_thread = False
            run = Run(make(Learner(lags, step_s)).build(), saving=Saving(commits, resume=commits.latest()))
            if cut_s < math.inf:
                asyncio.get_running_loop().call_later(cut_s, run.abort, RuntimeError("the lights went out"))
            return await run.finish()

    before: Lags = []
    with pytest.raises(RuntimeError, match="lights"):
        run_virtual(main(before, cut_s))
    after: Lags = []
    summary = run_virtual(main(after, math.inf))
    assert summary is not None
    return before, after, summary


def test_a_commit_with_full_buffers_is_gone_on_with_to_the_last_step(tmp_path):
    """S94: what waits for the step after the commit is there, and the step after that is made too."""

    async def same(value: int, context: Context) -> int:
        return value

    def make(learner: Learner) -> Graph:
        graph = Graph("full")
        numbers, work = graph.source("numbers", range(10)), graph.stage("work", same, workers=2, order="input")
        sink = graph.sink("sink", learner, collect=Collect(2, steps=5))
        _ = numbers >> work >> sink
        graph.edge(work, sink, capacity=Items(2))
        return graph

    before, after, summary = cut_once(tmp_path, make, 1.0, 1.5)  # in the second step, its items taken, more in the buffer
    assert [birth for step, birth, _ in before if step == 1] == [0, 1]
    assert [(step, birth) for step, birth, _ in after] == [(2 + at // 2, 2 + at) for at in range(8)]
    assert summary.balanced


def test_what_was_left_over_is_as_old_as_it_is_and_no_step_takes_what_is_too_old(tmp_path):
    """S97: age is judged by the version that the run goes on with."""

    async def play(value: int, context: Context) -> int:
        await asyncio.sleep(3 if value % 3 == 0 else 0.1)
        assert context.read().version <= 6
        return value

    def make(learner: Learner) -> Graph:
        graph = Graph("ages")
        cell = graph.latest("weights", int)
        numbers = graph.source("numbers", range(100))
        members, played = graph.repeat("members", numbers, n=1), graph.stage("play", play, workers=8, reads=cell)
        groups, sink = graph.group("groups", played), graph.sink("sink", learner, collect=Collect(2, steps=6))
        _ = numbers >> members >> played >> groups >> sink
        graph.feedback(sink, cell, initial=0, freshness=Freshness(max_lag=1))
        return graph

    before, after, summary = cut_once(tmp_path, make, 1.0, 8.0)
    steps = {step for step, _, _ in before}
    assert 2 <= len(steps) < 6
    first = min(step for step, _, _ in after)
    assert any(lag == 1 for step, _, lag in after if step == first)  # begun before the cut, one version ago
    assert all(lag is not None and 0 <= lag <= 1 for _, _, lag in after)
    trained = [birth for step, birth, _ in before if step < first] + [birth for _, birth, _ in after]
    assert len(trained) == len(set(trained)) == 12
    assert summary.balanced


def test_a_member_that_hangs_for_ever_does_not_hang_the_run_that_is_gone_on_with(tmp_path):
    """S4: its deadline settles it each time, its group is dropped by the rule, and the step is filled by others."""

    async def play(value: int, context: Context) -> int:
        await (asyncio.sleep(math.inf) if (value, context.member) == (1, 1) else asyncio.sleep(0.1))
        return value

    def make(learner: Learner) -> Graph:
        graph = Graph("stuck")
        numbers = graph.source("numbers", range(100))
        members = graph.repeat("members", numbers, n=2)
        played = graph.stage("play", play, workers=4, deadline_s=5, on_error=Drop())
        groups = graph.group("groups", played, missing=Retry(1, then="drop"))
        sink = graph.sink("sink", learner, collect=Collect(2, steps=4))
        _ = numbers >> members >> played >> groups >> sink
        cell = graph.latest("weights", int)
        graph.feedback(sink, cell, initial=0, freshness=Freshness(max_lag=1))
        return graph

    _, after, summary = cut_once(tmp_path, make, 1.0, 4.0)
    assert 1 not in {birth for _, birth, _ in after}
    assert max(step for step, _, _ in after) == 4
    assert summary.nodes["groups"].dropped == {"member failed: DeadlineExceeded": 1}
    assert summary.balanced

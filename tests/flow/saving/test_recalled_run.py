"""What a killed run had finished is not made again: a world counts who was executed how often, over all lives of a run."""

import asyncio
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from saved_program import Counted

from flow import Collect, Context, Emit, Failed, Failure, Freshness, Gathered, Graph, Retry, Run, Summary
from flow.saving import Commits, Cut, Journal, Made, Saving, read_journal
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor

STEPS, SIZE, PER_STEP = 10, 3, 2
Taken: TypeAlias = tuple[int, int, tuple[int, ...]]
"""Of a group that was trained: its lag, its birth, its members."""


class Summing:
    """A sink whose weight is a function of all it was trained on, in order."""

    def __init__(self, clock: random.Random) -> None:
        self.weight, self.steps, self._clock = 1, [], clock
        self._step: list[Taken] = []

    async def add(self, group: Gathered[int], context: Context) -> None:
        assert context.lag is not None
        self._step.append((context.lag, context.birth, group.members))
        await asyncio.sleep(self._clock.choice([0, 0.2]))

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(self._clock.choice([0, 0.1]))
        self.weight = weight_after(self.weight, self._step)
        self.steps.append(self._step)
        self._step = []
        return self.weight

    def state(self) -> tuple[int, list[list[Taken]]]:
        return self.weight, self.steps

    def restore(self, state: tuple[int, list[list[Taken]]]) -> None:
        self.weight, self.steps, self._step = state[0], list(state[1]), []


def weight_after(weight: int, step: list[Taken]) -> int:
    """What a step makes of the weight."""
    for _, birth, members in step:
        for value in members:
            weight = (weight * 31 + birth * 7 + value) % 1_000_003
    return weight


@dataclass
class World:
    """What is outside, and outlives every process.

    Attributes:
        begun: executions that began, by (path, member, retry, attempt).
        ended: executions that came to their end, by (path, retry).
        raises: whether some of them raise; the stage tries these again on the lease that it has.
    """

    begun: Counter[tuple[tuple[int, ...], int, int, int]] = field(default_factory=Counter)
    ended: Counter[tuple[tuple[int, ...], int]] = field(default_factory=Counter)
    raises: bool = True

    async def play(self, number: int, context: Context, clock: random.Random) -> int | Failed[int]:
        self.begun[context.path, context.member, context.retry, context.attempt] += 1
        weight = context.read().value
        await asyncio.sleep(clock.choice([0, 0, 0.3, 1, 3]))
        self.ended[context.path, context.retry] += 1
        luck = random.Random(f"{context.path} {context.retry}").random()
        if luck < 0.1 and self.raises:
            raise OSError("the server is away")
        if luck < 0.2:
            return Failed(0, "unlucky")
        return value_of(weight, number, context.member, context.retry)


def value_of(weight: int, number: int, member: int, retry: int) -> int:
    """What an execution gives."""
    return (weight * 3 + number * 11 + member + 100 * retry) % 10_007


@dataclass
class Life:
    """One process: what it is to do, and what it left."""

    folder: Path
    world: World
    seed: int = 0
    max_lag: int = 0
    cut_after_s: float | None = None
    suspend: bool = False
    every: int = 1
    keep: int = 2
    order: str = "any"
    late: str = "wait"
    workers: int = 5
    settings: str = ""

    def run(self) -> "Life":
        """Go on from the latest commit up to a time at which all is lost that is not on the disk, or to the end."""
        self.clock, self.summary, self.sink = random.Random(self.seed), None, None
        self.summary = run_virtual(self._main(), seed=self.seed)
        return self

    def graph(self, sink: Summing) -> Graph:
        clock, world = self.clock, self.world

        async def play(number: int, context: Context) -> int | Failed[int]:
            return await world.play(number, context, clock)

        def lost(number: int, failure: Failure) -> int:
            return -1

        graph = Graph("summing")
        cell = graph.latest("weight", int)
        numbers = graph.source("numbers", Counted())
        members = graph.repeat("members", numbers, n=SIZE)
        played = graph.stage(
            "play", play, workers=self.workers, reads=cell, order=self.order, on_error=Retry(1, then=Emit(lost))
        )
        groups = graph.group("groups", played, missing=Retry(2, then="drop"))
        trainer = graph.sink("trainer", sink, collect=Collect(PER_STEP, steps=STEPS))
        numbers >> members >> played >> groups >> trainer
        graph.edge(played, groups, durable=True)
        graph.feedback(trainer, cell, initial=lambda: sink.weight, freshness=Freshness(self.max_lag, self.late))
        return graph

    async def _main(self) -> Summary | None:
        with Commits(self.folder / "checkpoints", every=self.every, keep=self.keep) as commits:
            before = commits.latest()
            number = 0 if before is None else before.number
            with Journal(self.folder / "journal", after=number, settings=self.settings) as journal:
                self.sink = Summing(self.clock)
                running = Run(self.graph(self.sink).build(), saving=Saving(commits, resume=before, journal=journal))
                running.threads = PlayedExecutor
                if self.cut_after_s is not None:
                    asyncio.get_running_loop().call_later(self.cut_after_s, self._end, running, journal)
                try:
                    return await running.finish()
                except RuntimeError:
                    return None

    def _end(self, running: Run, journal: Journal) -> None:
        if self.suspend:
            running.suspend()
        else:
            journal.__exit__(None, None, None)  # the process is dead: not a word goes to the disk from here on
            running.abort(RuntimeError("the lights went out"))


def lives(folder: Path, seed: int, *, raises: bool = True, **settings: object) -> tuple[Life, World]:
    """Cut a run off again and again, and go on with it to its end."""
    clock, world = random.Random(seed), World(raises=raises)
    for number in range(30):
        life = Life(
            folder, world, 100 * seed + number, cut_after_s=4 * clock.random(), suspend=clock.random() < 0.3, **settings
        )
        if (summary := life.run().summary) is not None and summary.status == "completed":
            return life, world
    return Life(folder, world, seed, **settings).run(), world


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_what_was_finished_is_made_once_and_no_attempt_number_comes_twice(tmp_path, seed):
    """P3, with max_lag=0: every result is what it would have been, so all that was finished stands."""
    whole = Life(tmp_path / "whole", World()).run()
    settings = {"every": 1 + seed % 3, "keep": 1 + seed % 2, "order": "input" if seed % 4 == 3 else "any"}
    life, world = lives(tmp_path / "cut", seed, **settings)
    assert life.sink.steps == whole.sink.steps
    assert life.sink.weight == whole.sink.weight
    assert life.summary.balanced
    assert set(world.ended.values()) == {1}
    assert set(world.begun.values()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "max_lag", "late"),
    [(0, 1, "wait"), (0, 2, "wait"), (0, 1, "drop"), (5, 1, "wait"), (7, 2, "wait"), (20, 1, "drop"), (57, 2, "wait")],
)
def test_with_a_lag_a_result_stands_only_for_the_version_it_was_made_with(tmp_path, seed, max_lag, late):
    """P3: what a number of a version means may differ after a kill, and nothing is trained under a wrong one.

    Each value tells which weight it was made with. Those weights are worked out anew from the steps, and must be the ones in
    force at the version that the value is stamped with.
    """
    life, world = lives(tmp_path, seed, every=1 + seed, keep=1 + seed % 2, max_lag=max_lag, late=late, raises=False)
    assert life.summary.balanced
    assert set(world.begun.values()) == {1}
    assert late == "drop" or not any("stale" in node.dropped for node in life.summary.nodes.values())
    weights = [1]
    for number, step in enumerate(life.sink.steps):
        for lag, birth, members in step:
            weight = weights[number - lag]
            assert 0 <= lag <= max_lag
            for member, value in enumerate(members):
                assert value in [value_of(w, birth, member, r) for w in weights[number - lag :] for r in range(4)]
            oldest = [value_of(weight, birth, member, retry) for member in range(SIZE) for retry in range(4)]
            assert set(members) & set(oldest)
        weights.append(weight_after(weights[-1], step))
    assert life.sink.weight == weights[-1]


def versions_made_again(folder: Path, settings: str) -> tuple[set[int], int]:
    """Go on after the process died between two commits; gives versions of what was made twice, and that at the commit."""
    world = World(raises=False)
    Life(folder, world, 1, cut_after_s=25.5, every=4, settings="a").run()
    made = [record for record in read_journal(folder / "journal") if isinstance(record, Made)]
    (cut,) = [record for record in read_journal(folder / "journal") if isinstance(record, Cut)]
    assert Life(folder, world, 2, every=4, settings=settings).run().summary.status == "completed"
    again = {record.seen for record in made if world.ended[record.path, record.retry] == 2}
    assert {record.seen for record in made} >= {4, 5}
    return again, max(cut.trails["summing.weight"])


@pytest.mark.slow
def test_with_other_settings_what_was_made_with_versions_after_the_commit_is_made_again(tmp_path):
    """P5: a step with another learning rate gives another version of the same number. What was made before stands."""
    assert versions_made_again(tmp_path / "same", "a") == (set(), 4)
    again, at_commit = versions_made_again(tmp_path / "other", "b")
    assert again
    assert min(again) > at_commit


def test_a_run_that_begins_anew_beside_an_old_journal_with_other_settings_makes_all_itself(tmp_path):
    old, new = World(), World()
    Life(tmp_path, old, 1, cut_after_s=3, settings="a").run()
    assert old.ended
    shutil.rmtree(tmp_path / "checkpoints")
    Life(tmp_path, new, 2, settings="b").run()
    assert old.ended.keys() <= new.ended.keys()


@pytest.mark.slow
def test_a_journal_that_lost_its_files_costs_work_and_nothing_else(tmp_path):
    """Each life begins without what the one before it noted: results are made again, and the run is the same."""
    whole, world = Life(tmp_path / "whole", World()).run(), World()
    for number in range(30):
        shutil.rmtree(tmp_path / "cut" / "journal", ignore_errors=True)
        life = Life(tmp_path / "cut", world, number, cut_after_s=4).run()
        if life.summary is not None:
            break
    else:
        life = Life(tmp_path / "cut", world).run()
    assert life.sink.steps == whole.sink.steps
    assert life.summary.nodes["play"].recalled == 0


@pytest.mark.soak
def test_over_many_seeds_what_was_finished_is_made_once_and_stands_for_its_version(tmp_path):
    """P3: ``HEADRACE_SEEDS`` over forty is how many seeds, ``HEADRACE_FIRST_SEED`` the first."""
    first, count = int(os.environ.get("HEADRACE_FIRST_SEED", "0")), int(os.environ.get("HEADRACE_SEEDS", "4000")) // 40
    for seed in range(first, first + count):
        test_what_was_finished_is_made_once_and_no_attempt_number_comes_twice(tmp_path / f"{seed}", seed)
        for max_lag, late in ((1, "wait"), (2, "wait"), (1, "drop")):
            folder = tmp_path / f"{seed} {max_lag} {late}"
            test_with_a_lag_a_result_stands_only_for_the_version_it_was_made_with(folder, seed, max_lag, late)

"""A training graph in virtual time with a pinned evaluation beside it: scripted episodes, an engine that is a number."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from flow import Collect, Context, Failed, Freshness, Gathered, Graph, Run, Shrink
from flow.saving import Commits, Saving
from flow.testing._threads import PlayedExecutor
from stages.arrays import ARRAYS
from stages.evaluation.branch import HeldoutTasks, PinnedEpisodes, PinnedScores
from stages.evaluation.pinned import PinnedEvaluation
from stages.records import Episode, Group, Status, Task, Weights
from stages.scores import Score, Scores

TASKS = [Task(f"t{number}", "?") for number in range(6)]
TURNS = 8


class Told(msgspec.Struct):
    """What a world was told, as a run folder keeps it."""

    rows: list[dict[str, Any]]
    told: list[tuple[Score | None, int, int]]
    counted: list[tuple[int, str, int, list[int]]]


class KilledError(Exception):
    """The lights went out."""


class World:
    """An engine that serves one version, episodes that take it as they find it, and a trainer that counts.

    Args:
        heldout_s: seconds of a held-out episode, by task.
        every: as for ``PinnedEvaluation``.
        told_s: seconds that whoever is told of a score takes.
    """

    def __init__(
        self, *, steps=6, max_lag=0, every=2, first=True, deadline_s=None, heldout_s=None, quota=3, fails=None, told_s=0.0
    ):
        self.version = -1
        self.killed = KilledError()
        self.events: list[tuple[float, str]] = []
        self.rows: list[dict[str, Any]] = []
        self.told: list[tuple[Score | None, int, int]] = []
        self.busy: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.heldout_s = heldout_s or {}
        self.fails: set[str] = fails or set()
        self.stops_at: int | None = None
        self.steps = 0
        self.counted: list[tuple[int, str, int, list[int]]] = []
        self.pinned = PinnedEvaluation(
            self.load, every=every, last=steps, first=first, deadline_s=deadline_s, like=self.weights
        )
        self.graph = self.declare(steps, max_lag, quota, told_s)

    def weights(self) -> Weights:
        return Weights({"number": jnp.asarray(self.steps)})

    async def load(self, weights: Weights, version: int) -> None:
        assert weights.parameters["number"] == version
        self.version = version
        self.note(f"load {version}")

    def note(self, text: str) -> None:
        self.events.append((asyncio.get_running_loop().time(), text))

    async def train_episode(self, task: int, context: Context) -> int:
        async with context.permit("turns"):
            await self.at_work("train", 1.0)
        return task

    async def __call__(self, task: Task, context: Context) -> Episode | Failed[Episode]:
        """A held-out episode of two turns."""
        versions = []
        for _ in range(2):
            async with context.permit("turns"):
                versions += [self.version, self.version]
                await self.at_work("heldout", self.heldout_s.get(task.id, 1.0) / 2)
        failed = task.id in self.fails
        episode = Episode(
            task=task, birth=context.birth, member=context.member, retry=0,
            ids=np.array([int(task.id[1:]), *(7 * version + context.member for version in versions)], np.int32),
            mask=np.array([False, True, True, True, True]), logprobs=np.zeros(5, np.float32),
            versions=np.array([-1, *versions], np.int32), turns=(), messages=(),
            status=Status.ENVIRONMENT_ERROR if failed else Status.FINISHED,
        )  # fmt: skip
        return Failed(episode, "environment_error") if failed else episode

    async def at_work(self, kind: str, seconds: float) -> None:
        self.busy[kind] += 1
        self.most[kind] = max(self.most[kind], self.busy[kind])
        try:
            await asyncio.sleep(seconds)
        finally:
            self.busy[kind] -= 1
        self.note(kind)

    def reward(self, gathered: Gathered[Episode], context: Context) -> Group:
        """Every second task is right."""
        scored = [
            Episode(**{name: getattr(each, name) for name in each.__struct_fields__ if name != "reward"},
                    reward=float(int(each.task.id[1:]) % 2 == 0))
            for each in gathered.members
        ]  # fmt: skip
        for each in scored:
            self.counted.append((int(each.versions[-1]), each.task.id, each.member, each.ids.tolist()))
        return Group(gathered.birth, (*scored, *gathered.failed))

    def declare(self, steps: int, max_lag: int, quota: int, told_s: float) -> Graph:
        world = self

        class Trainer:
            def add(self, value: Gathered[int], context: Context) -> None:
                """Nothing to learn."""

            async def finish(self, context: Context) -> Weights:
                await asyncio.sleep(0.5)
                world.steps += 1
                world.note(f"step {world.steps}")
                return world.weights()

            def state(self) -> int:
                return world.steps

            def restore(self, state: int) -> None:
                world.steps = state

            def save(self, folder: Path) -> Callable[[], None]:
                return folder.mkdir

            def load(self, folder: Path) -> None:
                """Its steps are its state."""

        async def told(score: Score | None, evaluation: Any, row: Any) -> None:
            await asyncio.sleep(told_s)
            world.told.append((score, evaluation.version, int(evaluation.weights.parameters["number"])))
            if evaluation.version == world.stops_at:
                raise ArithmeticError("the score fell")

        graph = Graph("rl", pools={"turns": TURNS})
        weights, heldout = graph.latest("weights", Weights, load=self.pinned.swap), graph.latest("heldout", Score)
        prompts = graph.source("prompts", range(10_000))
        members = graph.repeat("members", prompts, n=8)
        episodes = graph.stage("episodes", self.train_episode, workers=64, reads=weights)
        trainer = graph.sink("trainer", Trainer(), collect=Collect(2, steps))
        _ = prompts >> members >> episodes >> graph.group("groups", episodes) >> trainer
        graph.feedback(trainer, weights, initial=self.weights, freshness=Freshness(max_lag))
        versions = graph.versions("versions", weights)
        tasks = graph.stage("heldout_tasks", HeldoutTasks(self.pinned, TASKS))
        attempts = graph.repeat("heldout_attempts", tasks, n=2)
        played = graph.stage("heldout_episodes", PinnedEpisodes(self.pinned, self), workers=quota, reads=weights, budget=None)
        rewards = graph.stage("heldout_rewards", self.reward)
        counts = PinnedScores(self.pinned, Scores(len(TASKS), 2, (2,)), told)
        scores = graph.sink("heldout_scores", counts, collect=Collect(len(TASKS), self.pinned.most))
        _ = versions >> tasks >> attempts >> played >> graph.group("heldout_groups", played, missing=Shrink(0)) >> rewards
        _ = rewards >> scores
        graph.feedback(scores, heldout, freshness=Freshness(0))
        return graph

    # a watcher of the run
    def committed(self, node: str, values: Any) -> None:
        """Nothing to count."""

    def reported(self, node: str, row: Any) -> None:
        self.rows.append(dict(row))
        self.note(f"row {row['version']}")

    def state(self) -> Told:
        return Told(self.rows, [(score, version, weights) for score, version, weights in self.told], self.counted)

    def restore(self, state: Told) -> None:
        self.rows, self.told, self.counted = list(state.rows), list(state.told), list(state.counted)

    def run(self, **options: Any) -> Run:
        return Run(self.graph.build(), watchers=(self,), **options)

    async def go_on(self, folder: Path, stop: Callable[[Run], None] | None = None) -> str:
        """Run on from what a folder holds; gives how it ended."""
        with Commits(folder, hooks=ARRAYS) as commits:
            run = self.run(saving=Saving(commits, beside={"told": self}, resume=commits.latest()))
            run.threads = PlayedExecutor
            if stop is not None:
                stop(run)
            try:
                return str((await run.finish()).status)
            except KilledError:
                return "killed"

    def at(self, text: str) -> float:
        return next(at for at, event in self.events if event == text)


@pytest.fixture(scope="session")
def make_world() -> type[World]:
    return World

"""Stages in virtual time, each in the place of one that works: episodes, what scores groups, the trainer."""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Self

import msgspec

from flow import Context, Gathered
from graphs.plan.permits import held_again
from graphs.plan.played_engine import PlayedEngine
from graphs.plan.shares import Shares, Thread
from graphs.plan.times import Times, TrainerTimes
from stages.batches.plan import Shape
from stages.batches.rows import RowFiller, Rows
from stages.losses.tokens import Loss
from stages.records import Batch, Episode, Group, Row, Task, Turn, Weights
from stages.train.config import TrainerConfig
from stages.train.minibatches import of_step


class PlayedEpisodes:
    """In the place of ``Episodes``: every turn of a recorded episode again, and as long as its environment took then.

    Args:
        times: measured; of its groups the one with the number of a group is played, from the first on again where they are
            fewer.
        engine: answers; opened and closed with this.
        turns: pool of which a turn takes a unit; ``None`` for none.
        loop: thread of the event loop, which works for every turn.
    """

    def __init__(self, times: Times, engine: PlayedEngine, turns: str | None, loop: Thread) -> None:
        self._times, self._engine, self._turns, self._loop = times, engine, turns, loop

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.__aexit__()

    async def __call__(self, task: Task, context: Context) -> Episode:
        """Play one."""
        group = self._times.groups[context.birth % len(self._times.groups)]
        episode = group.episodes[context.member % len(group.episodes)]
        session = f"{context.birth}/{context.member}/{context.retry}/{context.attempt}"
        await self._wait(episode.timings.setup_s, episode.timings.reset_s)
        steps = itertools.count()
        try:
            for number, turn in enumerate(episode.turns):
                await self._loop.work(self._times.turn_s / 2)
                await self._say(episode, turn, session, number, context)
                await self._loop.work(self._times.turn_s / 2)
                if turn.tool_s is not None:
                    holds = self._times.holds.get((group.birth, episode.member, next(steps)), ())
                    await held_again(turn.tool_s - self._times.late_s, holds, context)
        finally:
            for role in {row.role for row in episode.all_rows}:
                self._engine.release(f"{session}/{role}")
        await self._wait(episode.timings.score_s, episode.timings.close_s)
        return msgspec.structs.replace(episode, birth=context.birth, member=context.member, retry=context.retry)

    async def _wait(self, *parts_s: float | None) -> None:
        """Let some parts of an episode pass."""
        await asyncio.sleep(max(0.0, sum(seconds or 0.0 for seconds in parts_s) - self._times.late_s))

    async def _say(self, episode: Episode, turn: Turn, session: str, number: int, context: Context) -> None:
        row = _row_of(episode, turn)
        if turn.model_s is None or turn.stop == turn.start:
            return
        key = (0, context.birth, context.member, context.retry, number)
        ids, start, stop = episode.ids[row.start : row.stop], turn.start - row.start, turn.stop - row.start
        async with contextlib.nullcontext() if self._turns is None else context.permit(self._turns):
            await self._engine.say(f"{session}/{row.role}", ids, start, stop, key)


class PlayedRewards:
    """In the place of ``Rewards``: the rewards are there already.

    Args:
        seconds: of a group.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __call__(self, gathered: Gathered[Episode], context: Context) -> Group:
        """Score a group."""
        await asyncio.sleep(self._seconds)
        episodes = sorted((*gathered.members, *gathered.failed), key=lambda episode: episode.member)
        return Group(gathered.birth, tuple(episodes))


class PlayedScores:
    """In the place of a model that is asked about groups: what it says is there already.

    Args:
        seconds: of a group.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __call__(self, group: Group, context: Context) -> Group:
        """Score a group."""
        await asyncio.sleep(self._seconds)
        return group


class PlayedTrainer:
    """In the place of the trainer: lays the segments of its batches into the very micro-batches, each of which takes its time.

    Args:
        config: of the trainer.
        loss: of the trainer.
        times: what its parts take.
        device: that it shares, or has alone.
        whiten: see ``Trainer``.
        hold: see ``Trainer``.

    Attributes:
        ends_s: virtual time at the end of each step.
        busy_s: seconds in which it worked.
        microbatches: of all steps.
        groups: that were trained.
    """

    def __init__(
        self, config: TrainerConfig, loss: Loss, times: TrainerTimes, device: Shares, *, whiten: bool, hold: bool
    ) -> None:
        self._config, self._loss, self._times, self._shares, self._whiten = config, loss, times, device, whiten
        self._held = config.max_updates > 1 or whiten or hold
        self.ends_s: list[float] = []
        self.busy_s = 0.0
        self.microbatches = self.groups = 0
        self._begin()

    async def add(self, batch: Batch, context: Context) -> None:
        """See ``Trainer.add``."""
        self.groups += 1
        self._batches.append(batch)
        await self._work(self._times.group_s, 1.0)
        if not self._held:
            await self._gradients(self._filler.add(batch.units))

    async def finish(self, context: Context) -> Weights:
        """See ``Trainer.finish``."""
        if self._held:
            parts = of_step(self._batches, self._config, self._loss, whiten=self._whiten)
            for _ in range(self._config.num_epochs):
                await self._gradients([rows for part in parts for rows in part.rows])
        else:
            await self._gradients(self._filler.flush())
        await self._work(self._times.finish_s, 1.0)
        self.ends_s.append(asyncio.get_running_loop().time())
        self._begin()
        return Weights(None)

    def _begin(self) -> None:
        self._batches: list[Batch] = []
        self._filler = RowFiller(self._config.shapes, self._loss.needs.arrays)

    async def _gradients(self, blocks: Sequence[Rows]) -> None:
        for rows in blocks:
            self.microbatches += 1
            await self._work(self._seconds(rows.shape), self._times.demand)

    def _seconds(self, shape: Shape) -> float:
        """Of a shape that was not seen, by the tokens of the others."""
        known = self._times.gradient_s
        if shape in known:
            return known[shape]
        tokens = sum(rows * length for rows, length in known)
        return shape[0] * shape[1] * sum(known.values()) / tokens

    async def _work(self, seconds: float, demand: float) -> None:
        began = asyncio.get_running_loop().time()
        await self._shares.work(seconds, demand)
        self.busy_s += asyncio.get_running_loop().time() - began


def _row_of(episode: Episode, turn: Turn) -> Row:
    """The row that a turn stands in."""
    return next(row for row in episode.all_rows if row.start <= turn.start and turn.stop <= row.stop)

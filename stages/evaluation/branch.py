"""The three stages of a pinned evaluation that are its own: from a version to tasks, episodes with an end, and the count.

Between them stand a repeat, the reward stage and a barrier like anywhere else. ``pinned.py`` decides what is evaluated.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
import numpy as np

from flow import Context, Failed, Many
from stages.evaluation.pinned import Evaluation, PinnedEvaluation
from stages.records import Episode, Group, Status, Task
from stages.scores import Score, Scores

HeldoutRow = dict[str, int | float | str | None]
"""What an evaluation tells, by name: a row of ``metrics.jsonl``."""
OnScore = Callable[[Score | None, Evaluation, HeldoutRow], Awaitable[None]]
"""Told of an evaluation that is over; the score is ``None`` for one that was given up."""


class PlaysEpisodes(Protocol):
    """A stage that runs an episode for a task, as ``stages.episodes.Episodes``."""

    async def __call__(self, task: Task, context: Context, /) -> Episode | Failed[Episode]:
        """Run one."""
        ...


class HeldoutTasks:
    """Stage: all tasks of the evaluation of a version that is due, none of any other."""

    def __init__(self, pinned: PinnedEvaluation, tasks: Sequence[Task]) -> None:
        self._pinned, self._tasks = pinned, tuple(tasks)

    def __call__(self, version: int, context: Context) -> Many[Task]:
        """The tasks, in their order. The same if it is asked again."""
        return Many(self._tasks if self._pinned.is_of(version) else ())


class PinnedEpisodes:
    """Stage: an episode, cut short when the evaluation is given up. It then failed, and stays in the denominator."""

    def __init__(self, pinned: PinnedEvaluation, episodes: PlaysEpisodes) -> None:
        self._pinned, self._episodes = pinned, episodes

    async def __aenter__(self) -> Self:
        if isinstance(self._episodes, AbstractAsyncContextManager):
            await self._episodes.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._episodes, AbstractAsyncContextManager):
            await self._episodes.__aexit__(kind, error, trace)

    async def __call__(self, task: Task, context: Context) -> Episode | Failed[Episode]:
        """Run one episode."""
        with anyio.move_on_at(self._pinned.deadline) as scope:
            if scope.deadline > anyio.current_time():
                return await self._episodes(task, context)
        return self._given_up(task, context)

    def _given_up(self, task: Task, context: Context) -> Failed[Episode]:
        running = self._pinned.running
        assert running is not None, "only an evaluation under way has a deadline"
        running.cut.add((context.birth, context.member))
        reason = f"the evaluation of version {running.version} was given up after {running.deadline - running.since:g} s"
        episode = Episode(
            task=task, birth=context.birth, member=context.member, retry=context.retry, ids=np.zeros(0, np.int32),
            mask=np.zeros(0, bool), logprobs=np.zeros(0, np.float32), versions=np.zeros(0, np.int32), turns=(), messages=(),
            status=Status.TIMED_OUT, error=reason,
        )  # fmt: skip
        return Failed(episode, Status.TIMED_OUT.value, reason)


class PinnedScores:
    """Sink: a step is one evaluation. Counts its groups, reports the row of its version, and lets the next weights in.

    Args:
        pinned: what is under way.
        scores: counts; taken as it is for the first evaluation, renewed for each further one.
        on_score: told of each result; ``None`` for nobody.
    """

    def __init__(self, pinned: PinnedEvaluation, scores: Scores, on_score: OnScore | None = None) -> None:
        self._pinned, self._scores, self._on_score = pinned, scores, on_score
        self._counted: set[int] = set()

    def add(self, group: Group, context: Context) -> None:
        """Count a group, once also where it comes again.

        Raises:
            RuntimeError: a token was sampled by another version than the one that is evaluated.
        """
        running = self._pinned.running
        assert running is not None, "its groups are of the evaluation under way"
        found = {int(v) for episode in group.episodes for v in np.unique(episode.versions[episode.mask])} - {running.version}
        got = ", ".join(map(str, sorted(found)))
        if found:
            raise RuntimeError(
                f"expected held-out tokens of version {running.version} alone; got some of {got} "
                f"in task '{group.episodes[0].task.id}', in the evaluation branch; have every swap of the engine's weights go "
                "through PinnedEvaluation.swap"
            )
        if group.birth not in self._counted:
            self._counted.add(group.birth)
            self._scores.count(group)

    async def finish(self, context: Context) -> Score:
        """Close the evaluation: the swap that waits for it goes on.

        That and its row are the last things: as long as somebody is being told, the evaluation is under way for a run that goes
        on, to which the groups of this step come again.
        """
        evaluation, score = self._pinned.running, self._scores.score()
        assert evaluation is not None, "an evaluation ends once"
        row = partial(_row, evaluation, score, self._pinned.num_given_up)  # with the times of when it is called
        try:
            if self._on_score is not None:
                await self._on_score(None if evaluation.cut else score, evaluation, row())
        except Exception:
            context.report(row())  # what the run ended for
            raise
        context.report(row())
        self._pinned.end()
        self._scores, self._counted = self._scores.renewed(), set()
        return score


def _row(evaluation: Evaluation, score: Score, given_up_before: int) -> HeldoutRow:
    """What ``metrics.jsonl`` says of it. One that was given up measured nothing."""
    now, num_cut = anyio.current_time(), len(evaluation.cut)
    measured: dict[str, Any] = {
        "heldout": score.success,
        "heldout_low": score.low,
        "heldout_high": score.high,
        **{f"heldout_pass@{k}": value for k, value in score.pass_at.items()},
        "heldout_reward_mean": score.reward_mean,
    }
    whole = not num_cut
    late = f"the evaluation of version {evaluation.version} was given up, {num_cut} episodes short"
    return {
        "version": evaluation.version,
        **{name: value if whole else None for name, value in measured.items()},
        "heldout_episodes": score.episodes,
        "heldout_failed": score.failed,
        "heldout_given_up": given_up_before + (not whole),
        "heldout_tokens": score.num_sampled,
        "heldout_s": now - evaluation.since,
        "sync_wait_s": evaluation.held_until(now),
        "warning": None if whole else late,
    }

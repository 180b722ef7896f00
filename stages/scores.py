"""What an evaluation found: success and its interval, pass@k, and the sink that counts. Failures stay in the denominator.

Not a trainer and not a reward: groups arrive scored. A task is right in an attempt whose reward reached 1; an attempt that
failed, or never came, was wrong. The numbers are functions of how often each task was right; ``Scores`` counts that.

Axes: T tasks.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist
from typing import Self

import msgspec
import numpy as np

from flow import Context
from stages.records import Group, Status

REPORT_EVERY = 64
"""Most episodes between two reports, where a group has fewer."""
LEVEL = 0.95
"""Of every interval here."""


def pass_at_k(right: int, attempts: int, k: int) -> float:
    """Chance that at least one of k attempts is right, from one task tried ``attempts`` times. Unbiased.

    Source: Chen et al. 2021, "Evaluating Large Language Models Trained on Code", equation 1, 1 - C(n - c, k) / C(n, k), as the
    product of their listing 3. No difference.

    Raises:
        ValueError: k is not between 1 and ``attempts``, or ``right`` not between 0 and ``attempts``.
    """
    if not (1 <= k <= attempts and 0 <= right <= attempts):
        raise ValueError(
            f"expected 1 <= k <= attempts and 0 <= right <= attempts; got k={k}, right={right}, attempts={attempts}, in "
            "pass_at_k; try each task at least k times"
        )
    if attempts - right < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / n for n in range(attempts - right + 1, attempts + 1))


def check_pass_at(pass_at: Sequence[int], attempts: int) -> None:
    """Refuse a pass@k that so many attempts at a task cannot tell.

    Raises:
        ValueError: naming it.
    """
    if wrong := [k for k in pass_at if not 1 <= k <= attempts]:
        raise ValueError(
            f"expected each k of pass_at from 1 to attempts={attempts}; got {', '.join(map(str, wrong))}, in pass_at; raise "
            "attempts, or leave it out"
        )


def success_interval(right_T: Sequence[int], attempts: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of the mean success over tasks like these, for any number of attempts at each.

    With one attempt it is Wilson's. With several, attempts at one task are not independent, so tasks are what is drawn: the
    number of trials in Wilson's formula is the effective one, p (1 - p) over the variance of the mean between tasks. Unlike a
    bootstrap by task it does not collapse to a point where all tasks agree, and it needs no seed.

    Source: Wilson 1927, equation 5; Korn and Graubard 1998, section 2, for the effective number of trials. We differ: the
    variance divides by T, not T - 1, so that one attempt gives Wilson's to the bit; where all tasks are right, or all wrong,
    no variance can be measured, and the number is that of the tasks. It is at most T times ``attempts``.

    Args:
        right_T: right attempts of each task; at least one task.
        attempts: at each task.
        level: of the interval.

    Returns:
        Its ends, within 0 and 1.
    """
    share_T = np.asarray(right_T, np.float64) / attempts
    mean, trials = float(share_T.mean()), float(len(share_T))
    between = float(np.square(share_T - mean).sum()) / trials**2
    if 0 < mean < 1:
        trials = min(mean * (1 - mean) / max(between, 1e-300), trials * attempts)
    return wilson(mean, trials, level)


def wilson(share: float, trials: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a share that was measured in independent trials, of which there may be a broken number.

    Source: Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference"; without continuity correction.
    """
    z = NormalDist().inv_cdf(0.5 + level / 2)
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # At the ends the two are equal and the difference is rounding.
    return 0.0 if share == 0 else max(0.0, middle - half), 1.0 if share == 1 else min(1.0, middle + half)


class Score(msgspec.Struct, frozen=True):
    """What an evaluation found."""

    success: float
    """Share of all episodes wanted whose reward reached 1; an episode that failed or never came counts as not."""
    low: float
    """Lower end of its interval, see ``success_interval``."""
    high: float
    """Upper end."""
    pass_at: dict[int, float]
    """``pass_at_k`` for each k that was asked for, mean over tasks."""
    reward_mean: float | None
    """Mean reward of the episodes that have one; ``None`` where none has."""
    episodes: int
    """Episodes wanted."""
    statuses: dict[str, int]
    """Episodes that came, by status, failed ones included."""
    num_sampled: int
    """Tokens sampled."""
    tokens_per_episode: float | None
    """Mean sampled tokens of the episodes that came; ``None`` where none came."""
    missing: int
    """Episodes that never came: their whole group was dropped, or they ended without leaving a record."""

    @property
    def failed(self) -> int:
        """Episodes that say nothing about the policy, those that never came included."""
        return self.episodes - sum(count for status, count in self.statuses.items() if not Status(status).failed)


class ScoresState(msgspec.Struct, frozen=True):
    """What was counted so far.

    Attributes:
        statuses: episodes, by status.
        rewards: of the episodes that have one, in the order in which they came.
        right: right attempts of each task that came.
        num_sampled: tokens.
        reported: episodes at the last report.
    """

    statuses: dict[str, int]
    rewards: list[float]
    right: list[int]
    num_sampled: int
    reported: int


class Scores:
    """Counts the episodes of groups, a group for each task.

    Args:
        num_tasks: tasks wanted; with ``attempts`` the denominator.
        attempts: episodes wanted of each.
        pass_at: each k to give pass@k for.

    Raises:
        ValueError: a k that so many attempts cannot tell.
    """

    def __init__(self, num_tasks: int, attempts: int = 1, pass_at: Sequence[int] = ()) -> None:
        check_pass_at(pass_at, attempts)
        self._num_tasks, self._attempts, self._pass_at = num_tasks, attempts, tuple(pass_at)
        self._episodes = num_tasks * attempts
        self._statuses: Counter[str] = Counter()
        self._rewards: list[float] = []
        self._right: list[int] = []
        self._tokens = 0
        self._reported = 0

    def state(self) -> ScoresState:
        """All counts."""
        return ScoresState(dict(self._statuses), list(self._rewards), list(self._right), self._tokens, self._reported)

    def restore(self, state: ScoresState) -> None:
        """Go on from these counts."""
        self._statuses, self._rewards, self._right = Counter(state.statuses), list(state.rewards), list(state.right)
        self._tokens, self._reported = state.num_sampled, state.reported

    def renewed(self) -> Self:
        """The same with nothing counted."""
        return type(self)(self._num_tasks, self._attempts, self._pass_at)

    async def __call__(self, group: Group, context: Context) -> None:
        """Count a group and report how far the evaluation is: every 64 episodes or sooner, and with the last one."""
        self.count(group)
        done = self._statuses.total()
        if done - self._reported + len(group.episodes) > REPORT_EVERY or done == self._episodes:
            self._reported = done
            right = sum(self._right)
            context.report({"evaluated": done, "of": self._episodes, "success_so_far": right / done if done else None})

    def count(self, group: Group) -> None:
        """Count the episodes of a task."""
        rewards = [episode.reward for episode in group.episodes if episode.reward is not None]
        self._right.append(sum(reward >= 1.0 for reward in rewards))
        self._rewards += rewards
        for episode in group.episodes:
            self._statuses[episode.status.value] += 1
            self._tokens += episode.num_sampled

    def score(self) -> Score:
        """The result, once all have come that will."""
        came = self._statuses.total()
        # Sums that do not depend on the order in which episodes came: the same evaluation gives the same bits.
        right_T = sorted(self._right + [0] * (self._num_tasks - len(self._right)))
        low, high = success_interval(right_T, self._attempts)
        return Score(
            success=sum(right_T) / self._episodes,
            low=low,
            high=high,
            pass_at={
                k: math.fsum(pass_at_k(right, self._attempts, k) for right in right_T) / len(right_T) for k in self._pass_at
            },
            reward_mean=math.fsum(self._rewards) / len(self._rewards) if self._rewards else None,
            episodes=self._episodes,
            statuses=dict(sorted(self._statuses.items())),
            num_sampled=self._tokens,
            tokens_per_episode=self._tokens / came if came else None,
            missing=self._episodes - came,
        )

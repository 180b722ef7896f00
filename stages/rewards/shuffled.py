"""The control experiment: rewards that carry no information about the episode they are given to.

A run that still improves under them learns from something else than the reward (a leak, the warm start, the metric). Wraps any
scoring stage and changes nothing but ``Episode.reward``, which then belongs to no turn. Not a regulariser, and not for a run
whose result matters.
"""

from collections.abc import Awaitable, Callable

import msgspec
import numpy as np

from flow import Context, Gathered
from stages.records import Episode, Group

Scoring = Callable[[Gathered[Episode], Context], Awaitable[Group]]

TRUE_PART = "true_reward"
"""Name in ``Episode.parts`` under which the reward that was taken away is kept, for the record."""


def drawn_reward(seed: int, birth: int, member: int, share: float) -> float:
    """A reward of 1 with probability ``share``, else 0.

    Args:
        seed: of the run.
        birth: birth number of the group.
        member: index in the group. The three alone decide the draw.
        share: from 0 to 1.
    """
    return float(np.random.default_rng((seed, birth, member)).random() < share)


class Shuffled:
    """Replaces each reward with a draw that is a function of (seed, birth, member) alone.

    So the reward is independent of the episode and of its task, and the control gives the same numbers whatever the order in
    which groups are scored. A permutation inside the group would keep the mean of the group, which tells how hard the task was;
    one over the last groups would depend on their order. Failed members stay failed.

    Args:
        scoring: the stage that gives the true rewards.
        seed: of the draws.
        share: probability of a reward of 1, the other rewards are 0; best the success of the run that is controlled.

    Raises:
        ValueError: ``share`` is not above 0 and below 1.
    """

    def __init__(self, scoring: Scoring, seed: int, share: float = 0.4) -> None:
        if not 0.0 < share < 1.0:
            raise ValueError(
                f"Shuffled: expected a share above 0 and below 1, got {share}; "
                "constant rewards give no advantage and control nothing"
            )
        self._scoring = scoring
        self._seed = seed
        self._share = share

    async def __call__(self, gathered: Gathered[Episode], context: Context) -> Group:
        """Score the group, then put the draws in place of the rewards."""
        group = await self._scoring(gathered, context)
        return msgspec.structs.replace(group, episodes=tuple(self._swapped(episode) for episode in group.episodes))

    def _swapped(self, episode: Episode) -> Episode:
        if episode.reward is None:
            return episode
        draw = drawn_reward(self._seed, episode.birth, episode.member, self._share)
        parts = {**episode.parts, TRUE_PART: episode.reward}
        return msgspec.structs.replace(episode, reward=draw, parts=parts, turn_rewards=None)

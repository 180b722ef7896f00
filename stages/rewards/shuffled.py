"""The control experiment: rewards that carry no information about the episode they are given to.

A run that still improves under them learns from something else than the reward (a leak, the warm start, the metric). Wraps any
scoring stage and changes nothing but ``Episode.reward``. Not a regulariser, and not for a run whose result matters.
"""

from collections import deque
from collections.abc import Awaitable, Callable

import msgspec
import numpy as np

from flow import Context, Gathered
from stages.records import Episode, Group

Scoring = Callable[[Gathered[Episode], Context], Awaitable[Group]]

TRUE_PART = "true_reward"
"""Name in ``Episode.parts`` under which the reward that was taken away is kept, for the record."""


def drawn_rewards(pool: np.ndarray, count: int, seed: int, birth: int) -> np.ndarray:
    """Rewards drawn from a pool, with replacement.

    Args:
        pool: float64 [P], at least one.
        count: how many.
        seed: of the run.
        birth: birth number of the group; with the seed it decides the draw.

    Returns:
        float64 [count]: uniform over the pool.
    """
    return np.random.default_rng((seed, birth)).choice(pool, size=count, replace=True)


class Shuffled:
    """Replaces each reward with one drawn from the last rewards of *other* groups.

    So rewards keep the running distribution of the run (its mean success, say) and are independent of the member and of its
    task. A permutation inside the group would keep the mean of the group, which tells how hard the task was. The pool opens
    with one reward of 0 and one of 1. Failed members stay failed.

    The draws are a function of (seed, birth) and of the pool; the pool follows the order in which groups are scored, so run
    this stage with one worker where the control must give the same numbers twice.

    Args:
        scoring: the stage that gives the true rewards.
        seed: of the draws.
        window: number of latest rewards the pool holds, at least 2.
    """

    def __init__(self, scoring: Scoring, seed: int, window: int = 256) -> None:
        if window < 2:
            raise ValueError(f"Shuffled: expected a window of at least 2 rewards, got {window}; a window of 1 is no draw")
        self._scoring = scoring
        self._seed = seed
        self._pool: deque[float] = deque((0.0, 1.0), maxlen=window)

    async def __call__(self, gathered: Gathered[Episode], context: Context) -> Group:
        """Score the group, then give its members rewards of others."""
        group = await self._scoring(gathered, context)
        true = [episode.reward for episode in group.episodes]
        draws = drawn_rewards(np.array(self._pool), len(true), self._seed, group.birth)
        self._pool.extend(reward for reward in true if reward is not None)
        swapped = [
            episode if reward is None else _rewarded(episode, float(draw), reward)
            for episode, reward, draw in zip(group.episodes, true, draws, strict=True)
        ]
        return msgspec.structs.replace(group, episodes=tuple(swapped))


def _rewarded(episode: Episode, reward: float, true: float) -> Episode:
    return msgspec.structs.replace(episode, reward=reward, parts={**episode.parts, TRUE_PART: true})

"""The sink of an evaluation: counts what groups of held-out episodes scored. Failures stay in the denominator.

Not a trainer and not a reward: groups arrive scored. The result is read when the run is over.
"""

from collections import Counter

import msgspec

from flow import Context
from stages.records import Group

REPORT_EVERY = 64
"""Most episodes between two reports, where a group has fewer."""


class Score(msgspec.Struct, frozen=True):
    """What an evaluation found."""

    success: float
    """Share of all episodes wanted whose reward reached 1; an episode that failed or never came counts as not."""
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


class Scores:
    """Counts the episodes of groups.

    Args:
        episodes: episodes wanted, the denominator.
    """

    def __init__(self, episodes: int) -> None:
        self._episodes = episodes
        self._statuses: Counter[str] = Counter()
        self._rewards: list[float] = []
        self._tokens = 0
        self._reported = 0

    async def __call__(self, group: Group, context: Context) -> None:
        """Count a group and report how far the evaluation is: every 64 episodes or sooner, and with the last one."""
        for episode in group.episodes:
            self._statuses[episode.status.value] += 1
            self._tokens += episode.num_sampled
            if episode.reward is not None:
                self._rewards.append(episode.reward)
        done = self._statuses.total()
        if done - self._reported + len(group.episodes) > REPORT_EVERY or done == self._episodes:
            self._reported = done
            context.report({"evaluated": done, "of": self._episodes, "success_so_far": self._share(done)})

    def score(self) -> Score:
        """The result, once the run is over."""
        came = self._statuses.total()
        return Score(
            success=self._share(self._episodes),
            reward_mean=sum(self._rewards) / len(self._rewards) if self._rewards else None,
            episodes=self._episodes,
            statuses=dict(self._statuses),
            num_sampled=self._tokens,
            tokens_per_episode=self._tokens / came if came else None,
            missing=self._episodes - came,
        )

    def _share(self, of: int) -> float:
        return sum(reward >= 1.0 for reward in self._rewards) / of

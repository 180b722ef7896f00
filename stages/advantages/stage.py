"""Gives a scored group its advantages: ``Group -> Group``, or filtered where the group says nothing. Maths: ``grpo.py``."""

from collections.abc import Sequence

import msgspec
import numpy as np
from pydantic import BaseModel, ConfigDict

from flow import Context, Filtered
from stages.advantages.grpo import group_advantages
from stages.records import Episode, Group


class AdvantagesConfig(BaseModel):
    """How rewards of a group become advantages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scale: bool = True
    """Divide by the standard deviation of the group (GRPO); False only centres (Dr. GRPO)."""
    filter_no_signal: bool = False
    """Filter groups in which no member has an advantage. Their tickets go back and others are drawn within the same step (the
    dynamic sampling of DAPO); False lets them pass, counted by the trainer as ``no_signal_groups``, with nothing to train."""


class Advantages:
    """Group-relative advantages.

    Args:
        config: see ``AdvantagesConfig``; ``None`` takes the defaults.
    """

    def __init__(self, config: AdvantagesConfig | None = None) -> None:
        self._config = config or AdvantagesConfig()

    async def __call__(self, group: Group, context: Context) -> Group | Filtered:
        """Fill ``Group.advantages``; members that are not live get 0."""
        live = np.array([is_live(episode) for episode in group.episodes], dtype=bool)
        rewards = np.array(
            [np.nan if episode.reward is None else episode.reward for episode in group.episodes], dtype=np.float64
        )
        advantages = group_advantages(rewards, live, self._config.scale)
        if self._config.filter_no_signal and not advantages.any():
            return Filtered("no_signal")
        return msgspec.structs.replace(group, advantages=spread(advantages, group.episodes), live=tuple(live.tolist()))


def spread(values: np.ndarray, episodes: Sequence[Episode]) -> tuple[np.ndarray, ...]:
    """One value for each member as float32 [T] for each: on its sampled tokens, 0 elsewhere."""
    return tuple(
        np.where(episode.mask, np.float32(value), np.float32(0.0)) for value, episode in zip(values, episodes, strict=True)
    )


def is_live(episode: Episode) -> bool:
    """True where the member takes part in statistics: scored, not failed, and with a token that could be trained."""
    return episode.reward is not None and episode.status.rule.counts and episode.num_sampled > 0

"""Packs a group into a batch: ``Group -> Batch``. The packing itself is in ``pack.py``."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from flow import Context
from stages.batches.pack import episode_row, group_segments, pack
from stages.records import Batch, Group


class PackConfig(BaseModel):
    """How groups are packed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    row_length: int = Field(ge=2)
    """Tokens of a row; at least the longest episode, and equal to ``row_length`` of the trainer."""
    logprobs: Literal["required", "ignored"] = "required"
    """``required``: a sampled token without a finite log-probability is an error. ``ignored``: for demonstrations, whose tokens
    no policy sampled, and a loss that reads none."""


class Pack:
    """Members with an advantage become segments; all members stay in ``Batch.episodes`` for the metrics.

    A group without any signal gives a batch of no rows: it is still counted in its step.
    """

    def __init__(self, config: PackConfig) -> None:
        self._config = config

    async def __call__(self, group: Group, context: Context) -> Batch:
        """Pack one group.

        Raises:
            ValueError: see ``pack``.
        """
        episodes = tuple(episode_row(episode) for episode in group.episodes)
        segments = group_segments(group, self._config.logprobs == "required")
        return pack(group.birth, segments, self._config.row_length, episodes)

"""Packs a group into a batch: ``Group -> Batch``. The packing itself is in ``pack.py``."""

from pydantic import BaseModel, ConfigDict, Field

from flow import Context
from stages.batches.pack import pack_group
from stages.losses.tokens import Needs
from stages.records import Batch, Group


class PackConfig(BaseModel):
    """How groups are packed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    row_length: int = Field(ge=2)
    """Tokens of a row; at least the longest episode, and equal to ``row_length`` of the trainer."""


class Pack:
    """Members with a gradient become segments; all members stay in ``Batch.episodes`` for the metrics.

    A group without any signal gives a batch without units: it is still counted in its step.

    Args:
        config: see ``PackConfig``.
        needs: of the loss that reads the batches.
    """

    def __init__(self, config: PackConfig, needs: Needs) -> None:
        self._config, self._needs = config, needs

    async def __call__(self, group: Group, context: Context) -> Batch:
        """Pack one group.

        Raises:
            ValueError: see ``pack_group``.
        """
        return pack_group(group, self._needs, self._config.row_length)

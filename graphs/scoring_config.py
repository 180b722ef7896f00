"""Settings of the models that are asked about groups. What is done with them is in ``scoring.py``."""

import math

from jax.sharding import Mesh
from pydantic import BaseModel, ConfigDict, Field

from stages.models.mesh import shares_of_rows
from stages.scoring.config import Memory, ScoringConfig
from stages.train.following import FollowConfig


class ScorerConfig(BaseModel):
    """How a model scores groups."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows_per_batch: int | None = Field(default=None, ge=1)
    """Rows it reads at once, of the trainer's ``row_length``; bounds memory. ``None`` takes one for each member of a group, at
    most 8, and as many more as devices need to share them."""
    memory: Memory = "device"
    """Where parameters of its own rest between groups: on its devices, or in the memory of the host."""

    def shaped(self, lengths: tuple[int, ...], group_size: int, mesh: Mesh) -> ScoringConfig:
        """For a stage that computes on a mesh; of the lengths of rows the last is the longest."""
        shares = shares_of_rows(mesh)
        rows = self.rows_per_batch or math.ceil(min(group_size, 8) / shares) * shares
        return ScoringConfig(row_length=lengths[-1], row_lengths=lengths[:-1], rows_per_batch=rows, memory=self.memory)


class ReferenceConfig(ScorerConfig):
    """The reference model: the policy as it was when training began, or as it was a while ago."""

    follow: FollowConfig | None = None
    """How it follows the policy; ``None`` keeps it as it was: of a policy with adapters, what is beneath them."""


class TeacherConfig(ScorerConfig):
    """The teacher of the parts, as it is."""


class CriticConfig(ScorerConfig):
    """A critic beside the policy: a copy of it with one number in place of logits, trained in the same step."""

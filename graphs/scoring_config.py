"""Settings of the models that are asked about groups. What is done with them is in ``scoring.py``."""

from pydantic import BaseModel, ConfigDict, Field

from stages.scoring.config import Memory, ScoringConfig
from stages.train.following import FollowConfig


class ScorerConfig(BaseModel):
    """How a model scores groups."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows_per_batch: int = Field(default=8, ge=1)
    """Rows it reads at once, of the trainer's ``row_length``; bounds memory."""
    memory: Memory = "device"
    """Where parameters of its own rest between groups: on its devices, or in the memory of the host."""

    def shaped(self, row_length: int, row_lengths: tuple[int, ...]) -> ScoringConfig:
        """For the stage."""
        return ScoringConfig(
            row_length=row_length, row_lengths=row_lengths, rows_per_batch=self.rows_per_batch, memory=self.memory
        )


class ReferenceConfig(ScorerConfig):
    """The reference model: the policy as it was when training began, or as it was a while ago."""

    follow: FollowConfig | None = None
    """How it follows the policy; ``None`` keeps it as it was: of a policy with adapters, what is beneath them."""


class TeacherConfig(ScorerConfig):
    """The teacher of the parts, as it is."""


class CriticConfig(ScorerConfig):
    """A critic beside the policy: a copy of it with one number in place of logits, trained in the same step."""

"""Settings of a stage that scores tokens. No arrays."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Memory = Literal["device", "host"]
"""Where parameters rest between groups."""


class ScoringConfig(BaseModel):
    """The shape that groups are scored in, and where the model rests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    row_length: int = Field(ge=2)
    """Tokens of a row; at least the longest row of an episode."""
    rows_per_batch: int = Field(default=8, ge=1)
    """Rows of the one compiled program; bounds memory, changes no result but its rounding."""
    memory: Memory = "device"
    """Where parameters of its own rest: on its devices, or in the memory of the host, from which they are moved for each group.
    What it shares with the trainer stays where it is."""

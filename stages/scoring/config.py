"""Settings of a stage that scores tokens. No arrays."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.batches.plan import Shape, check_row_lengths, whole_shapes, with_parts

Memory = Literal["device", "host"]
"""Where parameters rest between groups."""


class ScoringConfig(BaseModel):
    """The shapes that groups are scored in, and where the model rests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    row_length: int = Field(ge=2)
    """Tokens of the longest rows; at least the longest row of an episode."""
    row_lengths: tuple[int, ...] = ()
    """Tokens of shorter rows, in ascending order, for what fits in them, as in the config of the trainer: a program each."""
    rows_per_batch: int = Field(default=8, ge=1)
    """Rows of ``row_length`` that are read at once, or as many tokens in shorter ones; bounds memory, changes no result but its
    rounding."""
    split_last: int = Field(default=4, ge=1)
    """Parts that a batch is cut into where a group does not fill it, 1 for none: a program more for each row length, and fewer
    empty rows. Parts that devices cannot share are left out."""
    memory: Memory = "device"
    """Where parameters of its own rest: on its devices, or in the memory of the host, from which they are moved for each group.
    What it shares with the trainer stays where it is."""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """(rows, tokens of a row) of whole batches, the longest rows first."""
        return whole_shapes(self.rows_per_batch, self.row_length, self.row_lengths)

    def shared(self, num_devices: int) -> tuple[Shape, ...]:
        """The same of each program on so many devices that share rows, parts after whole batches."""
        return with_parts(self.shapes, self.split_last, num_devices)

    @model_validator(mode="after")
    def _row_lengths_ascend(self) -> Self:
        check_row_lengths(self.row_lengths, self.row_length)
        return self

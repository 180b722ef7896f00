"""Settings of the trainer. No arrays, no optimizer."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.batches.plan import Shape, check_row_lengths, whole_shapes, with_parts


class TrainerConfig(BaseModel):
    """One optimizer, the shape of its micro-batches, and how often a step goes over its groups."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    learning_rate: float = Field(default=3e-4, gt=0.0)
    """Peak of the schedule."""
    warmup_steps: int = Field(default=0, ge=0)
    """Updates of linear rise from 0 to the peak; the first one then already has 1 / (warmup_steps + 1) of it."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After the warm-up: stay, or fall to ``final_share`` of the peak."""
    decay_steps: int | None = Field(default=None, ge=1)
    """Updates of the fall; ``None`` only with the constant schedule. A step has ``num_epochs * num_minibatches`` of them."""
    final_share: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of the peak at the end of the fall."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """Decoupled decay of matrices; norms, biases and vectors are not decayed."""
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay of Adam's first moment."""
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    """Decay of Adam's second moment."""
    epsilon: float = Field(default=1e-8, gt=0.0)
    """Added to Adam's denominator."""
    max_grad_norm: float | None = Field(default=1.0, gt=0.0)
    """Global norm the gradient is scaled down to; ``None`` never scales."""
    rows_per_microbatch: int = Field(default=8, ge=1)
    """Rows of ``row_length`` in a micro-batch; bounds memory, changes no result but its rounding."""
    row_length: int = Field(ge=2)
    """Tokens of the longest rows; equal to ``row_length`` of Pack."""
    row_lengths: tuple[int, ...] = ()
    """Tokens of shorter rows, in ascending order, for what fits in them: of each length a micro-batch has as many rows as give
    it the same number of tokens. A program is compiled for each."""
    split_last: int = Field(default=1, ge=1)
    """Parts that a micro-batch is cut into at the end of a step, where less than a whole one is left; 1 for none. A part is a
    program more for each row length, and fewer tokens of filling."""
    remat: Literal["none", "block"] = "none"
    """``block``: the backward pass works out the inside of each block again, from what flows between blocks. A third more
    arithmetic, for a fraction of the memory."""
    num_epochs: int = Field(default=1, ge=1)
    """Passes over the groups of a step. Above 1 a step is held until its last group is there, as with ``num_minibatches``."""
    num_minibatches: int = Field(default=1, ge=1)
    """Updates in a pass, each on a share of the groups, consecutive by birth; as many as the step has groups, if those are
    fewer."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Decides the order of the minibatches in each pass, together with step and pass; ``None`` for that of the run, and 0
    where there is none."""
    max_grad_norm_skip: float | None = Field(default=None, gt=0.0)
    """Global norm, before it is scaled down, above which an update is bad; ``None`` knows no such norm."""
    max_grad_norm_ratio: float | None = Field(default=None, gt=1.0)
    """The same as a multiple of the median of the latest norms; ``None`` compares with none. See ``stages.train.norms``."""
    on_bad_step: Literal["skip", "stop"] = "skip"
    """What a bad update, and one with a number that is not finite, does: it is left out and counted, or the run ends."""
    max_bad_steps: int = Field(default=4, ge=0)
    """Bad updates that a run keeps for ``headrace replay-batch``, the first ones; 0 keeps none."""
    optimizer_memory: Literal["device", "host"] = "device"
    """Where the optimizer state rests between updates. From the host's memory it is moved for each update and back."""
    no_signal_warning: float = Field(default=0.75, ge=0.0, le=1.0)
    """Share of groups without any advantage above which a step carries a warning."""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """(rows, tokens of a row) of each program of the gradient, the largest micro-batch of the longest rows first."""
        return with_parts(whole_shapes(self.rows_per_microbatch, self.row_length, self.row_lengths), self.split_last)

    @model_validator(mode="after")
    def _row_lengths_ascend(self) -> Self:
        check_row_lengths(self.row_lengths, self.row_length)
        return self

    @model_validator(mode="after")
    def _schedule_ends(self) -> Self:
        if self.schedule != "constant" and self.decay_steps is None:
            raise ValueError(f"expected decay_steps with schedule={self.schedule!r}, got None; set it to the steps of the run")
        return self

    @property
    def max_updates(self) -> int:
        """Most updates of a step."""
        return self.num_epochs * self.num_minibatches

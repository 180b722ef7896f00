"""Settings of the evaluation during training; see ``heldout.py``."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.agents.sampling import SamplingConfig
from stages.scores import check_pass_at


class HeldoutConfig(BaseModel):
    """Evaluation during training, on held-out tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: int | None = Field(default=None, ge=1)
    """Versions from one evaluation to the next; the last one is always evaluated. ``None`` evaluates nothing."""
    first: bool = True
    """Whether version 0, what training begins with, is evaluated too."""
    num_tasks: int | None = Field(default=None, ge=1)
    """So many of the held-out tasks, the first ones; ``None`` for all."""
    attempts: int = Field(default=1, ge=1)
    """Episodes of each task."""
    pass_at: tuple[int, ...] = ()
    """Each k for which pass@k is told; at most ``attempts``."""
    max_concurrency: int = Field(default=32, ge=1)
    """Episodes at once, its quota of the engine: it gets that before training does, and never more."""
    temperature: float | None = Field(default=None, ge=0)
    """Of its sampling, which is that of training in all else; ``None`` for that too, 0 for greedy."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """First part of its random keys. With the task and the attempt it is all of them, so equal weights give equal scores.
    ``None`` takes the one after the run's."""
    deadline_s: float | None = Field(default=1800.0, gt=0)
    """Seconds after which an evaluation is given up, counted, and the swap goes on; ``None`` for any."""

    @property
    def concurrency(self) -> int:
        """Episodes that stand beside those of training."""
        return 0 if self.every is None else self.max_concurrency

    def sampling(self, training: SamplingConfig) -> SamplingConfig:
        """How episodes are sampled, given how those of training are."""
        changes = {} if self.temperature is None else {"temperature": self.temperature}
        return training.model_copy(update={"seed": 1 if self.seed is None else self.seed, **changes})

    @model_validator(mode="after")
    def _enough_attempts(self) -> Self:
        check_pass_at(self.pass_at, self.attempts)
        return self

"""How an agent asks for turns: the knobs of sampling and the budgets of an episode."""

from typing import Annotated

import pydantic


class SamplingConfig(pydantic.BaseModel):
    """Temperature, truncation, stops, budgets and seed."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    temperature: float = pydantic.Field(default=1.0, ge=0)
    """Divides the logits; 0 takes the most likely token each time."""
    top_k: int = pydantic.Field(default=0, ge=0, lt=2**31)
    """How many of the most likely tokens may be drawn; 0 for all. This and the next two act in the order they stand here, after
    the temperature. Not for training: see ``truncates``."""
    top_p: float = pydantic.Field(default=1.0, gt=0, le=1)
    """Of what is left the most likely tokens that together have at least this share may be drawn; 1 for all."""
    min_p: float = pydantic.Field(default=0.0, ge=0, le=1)
    """Of what is left only tokens at least this share as likely as the most likely one may be drawn; 0 for all."""
    stop_strings: tuple[Annotated[str, pydantic.Field(min_length=1)], ...] = ()
    """A turn also ends with the token that completes any of these in its text; nothing of that token is cut off. Empty for the
    chat's stop tokens alone."""
    max_tokens_per_turn: int = pydantic.Field(default=64, ge=1)
    """Most tokens of one turn, the stop token included. What is left of the context, and of the budget below, may be less."""
    max_tokens_per_episode: int | None = pydantic.Field(default=None, ge=1)
    """Most sampled tokens of one episode, all turns together; ``None`` leaves it to the context length."""
    max_turns: int = pydantic.Field(default=8, ge=1)
    """Most turns of one episode."""
    seed: int | None = pydantic.Field(default=None, ge=0, lt=2**31)
    """First part of every random key of the run's episodes; ``None`` for that of the run, and 0 where there is none."""

    @property
    def truncates(self) -> bool:
        """Whether tokens are ruled out; then log-probabilities are not those of the whole vocabulary, as a trainer has them."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

"""How an agent asks for turns: the knobs of sampling and the budgets of an episode."""

import pydantic


class SamplingConfig(pydantic.BaseModel):
    """Temperature, budgets and seed."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    temperature: float = pydantic.Field(default=1.0, ge=0)
    """Divides the logits; 0 takes the most likely token each time."""
    max_tokens_per_turn: int = pydantic.Field(default=64, ge=1)
    """Most tokens of one turn, the stop token included. What is left of the context, and of the budget below, may be less."""
    max_tokens_per_episode: int | None = pydantic.Field(default=None, ge=1)
    """Most sampled tokens of one episode, all turns together; ``None`` leaves it to the context length."""
    max_turns: int = pydantic.Field(default=8, ge=1)
    """Most turns of one episode."""
    seed: int = pydantic.Field(default=0, ge=0, lt=2**31)
    """First part of every random key of the run's episodes."""

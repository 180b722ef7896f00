"""What an agent may ask of a model: token ids in; token ids, log-probabilities and versions out.

The one protocol between agents and whatever samples for them: the in-process engine today, an HTTP server alike. It has no
text, no messages and no tools.
"""

from typing import Literal, Protocol

import msgspec
import numpy as np


class SampleRequest(msgspec.Struct, frozen=True, eq=False):
    """A continuation wanted."""

    ids: np.ndarray
    """int32 [T]: the whole context, from the first token of the episode on."""
    max_tokens: int
    """Most tokens to sample, at least 1."""
    stop_ids: tuple[int, ...]
    """Sampling ends after any of these; the stop token is part of the result."""
    temperature: float
    """Above 0 divides the logits; 0 takes the most likely token, with the log-probability at temperature 1."""
    key: tuple[int, int, int, int, int]
    """(seed, birth, member, retry, turn). With the position it decides every random draw: the same key over the same
    weights gives the same tokens, whichever slot or batch they share."""
    session: str
    """Names the episode, so that the engine can keep its cache from turn to turn. Free it with ``release``."""


class Sample(msgspec.Struct, frozen=True, eq=False):
    """What was sampled. The arrays have one length N, at least 1."""

    ids: np.ndarray
    """int32 [N]"""
    logprobs: np.ndarray
    """float32 [N]: under the distribution that was sampled from."""
    versions: np.ndarray
    """int32 [N]: weight version in force when the token was sampled."""
    stop_reason: Literal["stop", "length"]
    """``stop`` if the last id is a stop token; ``length`` if ``max_tokens`` or the context ran out."""


class Policy(Protocol):
    """Something that samples. All methods are called from the event loop."""

    @property
    def context_length(self) -> int:
        """Most tokens of context and continuation together."""
        ...

    async def sample(self, request: SampleRequest) -> Sample:
        """Sample a continuation. Cancelling it frees the slot at the next step.

        Raises:
            ValueError: the context leaves no room for a single token, or a field is out of range.
        """
        ...

    def release(self, session: str) -> None:
        """The episode is over: its cache may go. Unknown sessions are ignored."""
        ...

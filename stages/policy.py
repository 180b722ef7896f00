"""What an agent may ask of a model: token ids in; token ids, log-probabilities and versions out.

The one protocol between agents and whatever samples for them: the in-process engine today, an HTTP server alike. It has no
text, no messages and no tools.
"""

from typing import Literal, Protocol

import msgspec
import numpy as np


class PolicyEnded(RuntimeError):
    """Raised by a policy that will never answer again: the run ends with it, since every episode would fail."""


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
    top_k: int = 0
    """How many of the most likely tokens may be drawn; 0 for all. What truncates acts in this order, after the temperature."""
    top_p: float = 1.0
    """Of what is left the most likely tokens that together have at least this share may be drawn; 1 for all."""
    min_p: float = 0.0
    """Of what is left only tokens at least this share as likely as the most likely one may be drawn; 0 for all."""
    stop_strings: tuple[str, ...] = ()
    """Sampling ends after the token that completes any of these in the sampled text. No token is cut off: ids, text and
    log-probabilities are of one span."""
    untempered: bool = False
    """Ask for the log-probabilities at temperature 1 over the whole vocabulary too."""
    flow: int | None = None
    """Number of the arrow that leads to it in the trace of the run, see ``flow.span``; ``None`` for none."""


class Sample(msgspec.Struct, frozen=True, eq=False):
    """What was sampled. The arrays have one length N: at least 1, or any number where it was aborted."""

    ids: np.ndarray
    """int32 [N]"""
    logprobs: np.ndarray
    """float32 [N]: under the distribution that was sampled from, temperature and truncation included."""
    versions: np.ndarray
    """int32 [N]: weight version in force when the token was sampled."""
    stop_reason: Literal["stop", "length", "aborted"]
    """``stop`` if the last id is a stop token or completes a stop string; ``length`` if ``max_tokens`` or the context ran out;
    ``aborted`` by ``Policy.abort``."""
    untempered: np.ndarray | None = None
    """float32 [N]: at temperature 1 over the whole vocabulary; ``None`` where it was not asked for."""
    num_cached: int | None = None
    """Tokens of the context that were not read in for this request, because they were kept from an earlier turn or shared with
    another session; ``None`` where the policy does not tell."""
    queue_s: float | None = None
    """Seconds until the request had a slot; ``None`` where the policy does not tell, as below."""
    prefill_s: float | None = None
    """Seconds from there until its context was read in; ``None`` also where it was aborted before."""
    decode_s: float | None = None
    """Seconds from there until its last token; ``None`` also where it was aborted before."""


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
            PolicyEnded: it will never answer again.
        """
        ...

    def release(self, session: str) -> None:
        """The episode is over: its cache may go. Unknown sessions are ignored."""
        ...

    def abort(self, session: str) -> None:
        """End what the session is sampling, at the next step: ``sample`` returns what there is, with the reason ``aborted``."""
        ...

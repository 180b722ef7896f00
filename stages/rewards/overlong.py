"""The soft overlong penalty: long replies cost something before they are cut. A pure function, and a reward of it."""

from dataclasses import dataclass

from stages.records import Episode


def overlong_penalty(num_tokens: int, max_tokens: int, buffer_tokens: int) -> float:
    """0 up to ``max_tokens - buffer_tokens``, then falling in a straight line to -1 at ``max_tokens``, and -1 beyond.

    Args:
        num_tokens: sampled tokens of the episode.
        max_tokens: where the penalty is whole; mostly the token budget of an episode.
        buffer_tokens: over how many tokens it grows.

    Source: Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale" (arXiv 2503.14476), equation 13.
        We differ: the length is the number of sampled tokens. What tools and observations said in between is not the policy's
        length.
    """
    over = num_tokens - (max_tokens - buffer_tokens)
    return -min(1.0, max(0.0, over / buffer_tokens))


@dataclass(frozen=True)
class SoftOverlong:
    """``overlong_penalty`` of an episode, as a reward function.

    Attributes:
        max_tokens: sampled tokens at which the penalty is whole.
        buffer_tokens: tokens over which it grows, at least 1 and at most ``max_tokens``.

    Raises:
        ValueError: the buffer is none, or larger than the whole.
    """

    max_tokens: int
    buffer_tokens: int

    def __post_init__(self) -> None:
        if not 1 <= self.buffer_tokens <= self.max_tokens:
            raise ValueError(
                f"SoftOverlong: expected a buffer from 1 to max_tokens={self.max_tokens} tokens, got {self.buffer_tokens}; "
                "take a fifth of max_tokens, as DAPO does"
            )

    def __call__(self, episode: Episode) -> float:
        """The penalty, from -1 to 0."""
        return overlong_penalty(episode.num_sampled, self.max_tokens, self.buffer_tokens)

"""What an engine said beside what the plain forward pass said. Pure, but for the scores of a close call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.bench.engines.talks import Talk, Turns, context_of
from stages.policy import Sample

Scores = Callable[[np.ndarray], np.ndarray]
"""Context, int32 [T] -> scores of the token after each of its tokens, float32 [T, V]."""


@dataclass(frozen=True)
class Compared:
    """What came of it.

    Attributes:
        talks: compared.
        tokens: compared: up to and with the first that differs in a talk, since what follows has another context.
        ties: tokens that differ and are as likely as the other, within the tolerance: rounding decides.
        different: tokens that differ otherwise.
        stops: turns that ended for another reason after the same tokens.
        largest: difference of two log-probabilities of the same token, in nats.
    """

    talks: int
    tokens: int
    ties: int
    different: int
    stops: int
    largest: float


def compared(
    talks: Sequence[Talk], expected: Sequence[Turns], got: Sequence[Turns], scores: Scores, tolerance: float
) -> Compared:
    """Compare talks.

    Args:
        talks: that were held.
        expected: turns of the plain forward pass, of each talk.
        got: those of the engine.
        scores: of the weights they were held with.
        tolerance: of log-probabilities, in nats; two tokens within twice of it may be taken for one another.
    """
    tokens = ties = different = stops = 0
    largest = 0.0
    for talk, ours, theirs in zip(talks, expected, got, strict=True):
        for turn, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            same = _num_same(one.ids, other.ids)
            tokens += same
            apart = np.abs(one.logprobs[:same] - other.logprobs[:same])
            largest = max(largest, float(apart.max(initial=0.0)))
            if same == len(one.ids) == len(other.ids):
                stops += one.stop_reason != other.stop_reason
                continue
            tokens += 1
            tie = talk.greedy and _is_tie(scores, context_of(talk, ours, turn), one, other, same, 2 * tolerance)
            ties, different = ties + tie, different + (not tie)
            break
    return Compared(len(talks), tokens, ties, different, stops, largest)


def same_bits(one: Sequence[Turns], other: Sequence[Turns]) -> bool:
    """Whether tokens, stop reasons and every bit of the log-probabilities are equal."""
    return [_bits(turns) for turns in one] == [_bits(turns) for turns in other]


def num_changed(one: Sequence[Turns], other: Sequence[Turns]) -> int:
    """Talks in which other tokens were sampled."""
    return sum([s.ids.tolist() for s in a] != [s.ids.tolist() for s in b] for a, b in zip(one, other, strict=True))


def num_sampled(turns: Sequence[Turns]) -> int:
    """Tokens sampled."""
    return sum(len(sample.ids) for of_talk in turns for sample in of_talk)


def _bits(turns: Turns) -> list[tuple[bytes, bytes, str]]:
    return [(sample.ids.tobytes(), sample.logprobs.tobytes(), sample.stop_reason) for sample in turns]


def _num_same(one: np.ndarray, other: np.ndarray) -> int:
    length = min(len(one), len(other))
    unlike = np.flatnonzero(one[:length] != other[:length])
    return int(unlike[0]) if len(unlike) else length


def _is_tie(scores: Scores, context: np.ndarray, one: Sample, other: Sample, at: int, most: float) -> bool:
    """Whether the tokens at a place where two replies part are as likely as one another."""
    if at >= len(one.ids) or at >= len(other.ids):
        return False
    row = scores(np.concatenate([context, one.ids[:at]]).astype(np.int32))[-1]
    return bool(abs(float(row[one.ids[at]]) - float(row[other.ids[at]])) <= most)

"""The update every system makes: token ids, which of them were sampled, advantages, and log-probabilities they were sampled at.

Drawn from a seed by the standard library, so it is the same in every environment and on every day. Groups of eight share a
prompt; completions are log-normal, cut off at eight times the median: a few of them make most of the padding. Each setting of
the sweep has about as many tokens. The model is a llama with the width, heads and vocabulary of SmolLM2-135M and random
weights; no value changes a time, but all systems read the same ones.
"""

import random
from typing import NamedTuple

WIDTH, HEADS, KEY_HEADS, HEAD, HIDDEN, VOCABULARY = 576, 9, 3, 64, 1536, 49152
NUM_LAYERS = 12
"""Of 30: an update of the whole model takes one of the peers minutes on two cores."""
ROTARY_BASE = 1_000_000.0
"""What tunix's Llama turns positions with, whatever its configuration says."""
GROUP, PROMPT, SIGMA = 8, 32, 1.0
SETTINGS = ((64, 20), (32, 60), (16, 140))
"""(sequences, median tokens of a completion)"""
MICRO_BATCHES = (4, 8)
"""Sequences in a micro-batch that a peer is tried with."""
EPSILON, MAX_GRAD_NORM, WEIGHT_DECAY = 0.2, 1.0, 0.0
LEARNING_RATE = 1e-9
"""So small that every round has the loss of the first, and the losses of all systems can be compared."""


class Sequence(NamedTuple):
    """A prompt and its completion."""

    prompt: list[int]
    completion: list[int]
    logprobs: list[float]
    """At which the completion was sampled: around those of a model that knows nothing, so that some ratios are clipped."""
    advantage: float


def draw(num_sequences: int, median: int) -> list[Sequence]:
    """The sequences of one setting, in order of their groups."""
    source = random.Random(f"{num_sequences} {median}")
    found, prompt = [], []
    for number in range(num_sequences):
        if number % GROUP == 0:
            prompt = [source.randrange(3, VOCABULARY) for _ in range(source.randint(PROMPT // 2, PROMPT))]
        length = min(max(round(source.lognormvariate(0.0, SIGMA) * median), 4), 8 * median)
        completion = [source.randrange(3, VOCABULARY) for _ in range(length)]
        logprobs = [source.uniform(-11.6, -11.0) for _ in range(length)]
        found.append(Sequence(prompt, completion, logprobs, source.gauss(0.0, 1.0)))
    return found


def num_tokens(sequences: list[Sequence]) -> int:
    """Prompts and completions."""
    return sum(len(sequence.prompt) + len(sequence.completion) for sequence in sequences)


def num_targets(sequences: list[Sequence]) -> int:
    """Completions alone."""
    return sum(len(sequence.completion) for sequence in sequences)


def padded(sequences: list[Sequence], pad: int = 0) -> dict[str, list]:
    """As rows that a peer takes: prompts filled up on the left, completions on the right, to the longest of these."""
    prompt = max(len(sequence.prompt) for sequence in sequences)
    completion = max(len(sequence.completion) for sequence in sequences)
    rows: dict[str, list] = {}
    for sequence in sequences:
        left, right = prompt - len(sequence.prompt), completion - len(sequence.completion)
        row = {
            "prompt_ids": [pad] * left + sequence.prompt,
            "prompt_mask": [0] * left + [1] * len(sequence.prompt),
            "completion_ids": sequence.completion + [pad] * right,
            "completion_mask": [1] * len(sequence.completion) + [0] * right,
            "old_per_token_logps": sequence.logprobs + [0.0] * right,
            "advantages": sequence.advantage,
        }
        for name, value in row.items():
            rows.setdefault(name, []).append(value)
    return rows


def in_micro_batches(sequences: list[Sequence], size: int) -> list[list[Sequence]]:
    """Cut in order, as they come."""
    return [sequences[at : at + size] for at in range(0, len(sequences), size)]

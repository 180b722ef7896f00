"""An episode with the policy's own words alone: what a reward function sees unless it asks for more. Pure.

A tool that prints the right answer, an observation that holds it, a prompt with a solved example: none of it is the policy's
doing, and a function that cannot see it cannot reward it by mistake.
"""

from typing import TypeVar

import msgspec
import numpy as np

from stages.records import Episode, Message, Row, Turn

Span = TypeVar("Span", Turn, Row)

_ARRAYS = ("ids", "logprobs", "versions", "reference", "teacher", "values")


def own_words(episode: Episode) -> Episode:
    """The episode with the messages that the policy sampled, and with the tokens it sampled.

    Everything else is as it was: the task, parts, status, and turns and rows, whose places are among the tokens that are left.
    Messages of the assistant that were given to it, as examples in a prompt, are left out.

    Args:
        episode: the whole one.
    """
    place = np.concatenate([[0], np.cumsum(episode.mask)]).tolist()
    arrays = {name: array[episode.mask] for name in _ARRAYS if (array := getattr(episode, name)) is not None}
    return msgspec.structs.replace(
        episode,
        **arrays,
        mask=np.ones(place[-1], bool),
        messages=_sampled(episode),
        turns=tuple(_moved(turn, place) for turn in episode.turns),
        rows=tuple(_moved(row, place) for row in episode.rows),
    )


def _moved(span: Span, place: list[int]) -> Span:
    return msgspec.structs.replace(span, start=place[span.start], stop=place[span.stop])


def _sampled(episode: Episode) -> tuple[Message, ...]:
    """One for each turn. Given ones can only stand before the first turn: whoever opens a conversation may write them."""
    if not episode.mask.any():
        return ()
    said = [message for message in episode.messages if message.role == "assistant"]
    return tuple(said[-len(episode.turns) :])

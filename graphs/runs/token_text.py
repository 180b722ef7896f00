"""What each token of an episode reads as, and who said it: for people. Pure; nothing is trained by it."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from stages.records import Episode, Message

SAMPLED, TEMPLATE, OBSERVATION = "s", "t", "o"
"""Kinds of tokens: sampled by the policy; marks of the chat template; said by a tool, the environment or a user."""
_UNREADABLE = "\ufffd"
"""What bytes of a character that is not whole yet read as."""
_WINDOW = 8
"""Tokens that are decoded together: a character has at most 4 bytes, and what stands before decides about spaces."""


def token_texts(decode: Callable[[np.ndarray], str], ids: np.ndarray) -> list[str]:
    """Text of each token; those of one character that takes several are empty but for the last. Together they are the whole.

    Args:
        decode: any ids as text.
        ids: int [T].
    """
    texts: list[str] = []
    start, told = 0, ""
    for stop in range(1, len(ids) + 1):
        text = decode(ids[start:stop])
        whole = not text.endswith(_UNREADABLE) or stop - start > _WINDOW or stop == len(ids)
        texts.append(text[len(told) :] if whole else "")
        told = text if whole else told
        if whole and stop - start >= _WINDOW:
            start = stop - _WINDOW // 2
            told = decode(ids[start:stop])
    return texts


def token_kinds(episode: Episode, texts: Sequence[str]) -> str:
    """A letter for each token, see ``SAMPLED``.

    What was not sampled is searched for the texts of the messages that the policy was given, in their order. One that the
    template wrote otherwise is not found, and its tokens count as the template's.

    Args:
        episode: with its messages.
        texts: of its tokens.
    """
    kinds = [SAMPLED if sampled else TEMPLATE for sampled in episode.mask]
    for row in episode.all_rows:
        told = 0
        for start, stop in _given(episode.mask, row.start, row.stop):
            for number, tokens in _found(texts[start:stop], episode.messages, range(told, _before_turn(episode, stop))):
                told = number + 1
                for at in tokens:
                    kinds[start + at] = OBSERVATION
    return "".join(kinds)


def _given(mask: np.ndarray, start: int, stop: int) -> list[tuple[int, int]]:
    """Stretches of a row that were not sampled."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], mask[start:stop], [True]]).astype(np.int8))) + start
    return [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]


def _before_turn(episode: Episode, stop: int) -> int:
    """Messages that may stand in tokens which end at a place: those before the turn that begins there, where that is known."""
    spoken = [at for at, message in enumerate(episode.messages) if message.role == "assistant"]
    turn = next((at for at, turn in enumerate(episode.turns) if turn.start == stop), None)
    alone = len(spoken) == len(episode.turns) and not any(row.role for row in episode.rows)
    return len(episode.messages) if turn is None or not alone else spoken[turn]


def _found(texts: Sequence[str], messages: Sequence[Message], numbers: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """(number of a message, its tokens) of each message that was given and is found, one after another."""
    ends = list(itertools.accumulate(len(text) for text in texts))
    starts = [0, *ends[:-1]]
    whole, after = "".join(texts).lower(), 0
    for number in numbers:
        wanted = messages[number].content.strip().lower()
        place = whole.find(wanted, after) if wanted and messages[number].role != "assistant" else -1
        if place >= 0:
            after = place + len(wanted)
            yield (
                number,
                [at for at, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < after and end > place],
            )

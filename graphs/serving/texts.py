"""Text of a choice as it grows, without what ended it. Pure.

Text is given on as soon as it can only stay: no half of a character, nothing that may yet turn out to begin a stop text.
"""

from collections.abc import Callable, Sequence

import numpy as np

_UNREADABLE = "\ufffd"
"""What bytes of a character that is not whole yet read as."""


class GrowingText:
    """The text of one choice.

    Args:
        decode: token ids as text.
        stop_ids: tokens that end a choice; the last one of them has no text.
        stops: texts that end it.
        keep_stop: whether a stop text stays.
    """

    def __init__(self, decode: Callable[[np.ndarray], str], stop_ids: Sequence[int], stops: Sequence[str], keep_stop: bool):
        self._decode, self._stop_ids, self._stops, self._keep_stop = decode, frozenset(stop_ids), stops, keep_stop
        self._ids: list[int] = []
        self._before = self._read = 0
        self._held = ""

    def feed(self, token: int) -> str:
        """The next token, which does not end the choice; what can be given on."""
        self._ids.append(token)
        self._held += self._new(flush=False)
        keep = max((_kept_back(self._held, stop) for stop in self._stops), default=0)
        given, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return given

    def finish(self, ids: Sequence[int]) -> str:
        """The last tokens of the choice; the rest of its text."""
        ended = bool(len(ids)) and int(ids[-1]) in self._stop_ids
        self._ids += [int(token) for token in (ids[:-1] if ended else ids)]
        text = self._held + self._new(flush=True)
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if not found:
            return text
        first = min(found)
        longest = max(len(stop) for stop in self._stops if text.startswith(stop, first))
        return text[: first + (longest if self._keep_stop else 0)]

    def _new(self, flush: bool) -> str:
        """Text of tokens that was not there before. Only the newest are decoded, behind some that give them their place."""
        known = self._decode(np.array(self._ids[self._before : self._read], np.int32))
        text = self._decode(np.array(self._ids[self._before :], np.int32))
        if not flush and (text.endswith(_UNREADABLE) or len(text) <= len(known)):
            return ""
        self._before, self._read = self._read, len(self._ids)
        return text[len(known) :]


def _kept_back(text: str, stop: str) -> int:
    """Characters at the end of a text that belong to a stop text, or may turn out to."""
    if (place := text.find(stop)) >= 0:
        return len(text) - place
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)

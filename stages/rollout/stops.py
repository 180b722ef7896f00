"""When a reply ends: after a stop token, or after the token that completes a stop string in the sampled text. No device."""

from collections.abc import Callable

import numpy as np

from stages.policy import SampleRequest

Decode = Callable[[np.ndarray], str]
"""Token ids [N] as text."""

SPARE_BYTES = 4
"""Read beyond the length of a stop string, so that a character cut at the beginning of what is read spoils nothing."""


class Stops:
    """Stop tokens and stop strings of one request.

    Only the newest tokens are read for a string, as many as give a text longer than it: what came before was read when it was
    new. Text of the context does not count, so a string that begins before the reply is none.

    Args:
        request: what was asked for.
        decode: reads tokens; needed where there are stop strings.
    """

    def __init__(self, request: SampleRequest, decode: Decode | None = None):
        self.stop_ids = frozenset(request.stop_ids)
        self._strings = request.stop_strings
        self._decode = decode
        self._window = max((len(string.encode()) for string in self._strings), default=0) + SPARE_BYTES

    def ended_by(self, sampled: np.ndarray) -> bool:
        """Whether the newest of the sampled ids [N], N at least 1, ends the reply."""
        if int(sampled[-1]) in self.stop_ids:
            return True
        if not self._strings or self._decode is None:
            return False
        num = self._window
        text = self._decode(sampled[-num:])
        # Some tokens have no text: reading goes on until there is enough.
        while len(text.encode()) < self._window and num < len(sampled):
            num *= 2
            text = self._decode(sampled[-num:])
        return any(string in text for string in self._strings)

"""The chat format of the agentic workload, as headrace asks for one: a token for each letter, marks between messages."""

from collections.abc import Sequence

import numpy as np
from agentic_world import Letters, between, opening

from stages.records import Message
from stages.text.chat import ToolSpec
from stages.text.transcript import Transcript


class LettersChat:
    """See ``stages.text.chat.Chat``. A conversation is opened by one user message and only grows; nothing in it is a call."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._letters = Letters(tokens)
        self.stop_ids = (self._letters.end,)
        self.vocab_size = len(tokens)
        self.pad_id = self._letters.pad

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> np.ndarray:
        """See ``Chat.open``."""
        (message,) = messages
        return self._ids(opening(message.content))

    def write(self, message: Message) -> np.ndarray:
        """See ``Chat.write``."""
        return self._ids(message.content + "<|end|>")

    def extend(self, replies: Sequence[Message], *, closed: bool = True, said: Message | None = None) -> np.ndarray:
        """See ``Chat.extend``."""
        (reply,) = replies
        return self._ids(("" if closed else "<|end|>") + between(reply.content))

    def fork(self, transcript: Transcript, replies: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """See ``Chat.fork``: a conversation only grows."""

    def read(self, ids: np.ndarray, turn: int = 0, tools: Sequence[ToolSpec] = ()) -> Message:
        """See ``Chat.read``."""
        ended = len(ids) > 0 and int(ids[-1]) in self.stop_ids
        return Message("assistant", self.decode(ids[:-1] if ended else ids))

    def decode(self, ids: np.ndarray) -> str:
        """See ``Chat.decode``."""
        return self._letters.decode([int(one) for one in ids])

    def _ids(self, text: str) -> np.ndarray:
        return np.array(self._letters.encode(text), np.int32)

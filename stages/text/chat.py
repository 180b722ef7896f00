"""What turns a conversation into token ids and one sampled turn back into a message.

Not a tokenizer and not a history: an episode is a list of ids that only grows. ``open`` gives its first ids, the policy samples
a turn, ``extend`` gives the ids of everything between the end of that turn and the next one. No turn is ever encoded again, so
the ids that are trained are the ids that were sampled. Called by agents and by ``Demonstrate``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from stages.records import Message
from stages.text.transcript import Transcript


class ToolSpec(Protocol):
    """What a rendering shows the model of a tool. Every ``stages.tools`` tool is one."""

    @property
    def name(self) -> str:
        """Name the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """What it does, for the model."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of its arguments, an object schema."""
        ...


class Chat(Protocol):
    """A conversation format over one vocabulary."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end an assistant turn; they belong to the turn."""
        ...

    @property
    def vocab_size(self) -> int:
        """Ids lie in ``range(vocab_size)``."""
        ...

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> np.ndarray:
        """Ids of a new conversation, int32 [T], from the begin token to the end of the generation prompt.

        Raises:
            ValueError: a message cannot be written in this format.
        """
        ...

    def write(self, message: Message) -> np.ndarray:
        """Ids a policy would have sampled to say an assistant message, its end token included, int32 [N].

        For demonstrations only: what a policy did sample is never written again.

        Raises:
            ValueError: the message is not an assistant's, or cannot be written in this format.
        """
        ...

    def extend(self, replies: Sequence[Message], *, closed: bool = True, said: Message | None = None) -> np.ndarray:
        """Ids between the last token of an assistant turn and the first of the next one, int32 [N].

        They are the text that closes the turn, the replies in the order given, and the generation prompt.

        Args:
            replies: what was said in between.
            closed: whether the turn ended with a stop token. If not, as after a stop string, its end token comes first.
            said: the turn as read, for formats that name the tool in its reply; ``None`` where nobody knows.

        Raises:
            ValueError: a reply cannot be written in this format.
        """
        ...

    def fork(self, transcript: Transcript, replies: Sequence[Message], tools: Sequence[ToolSpec]) -> np.ndarray | None:
        """The whole conversation as the format would write it now, where that is not how the policy saw it.

        Args:
            transcript: up to and with the turn that the replies answer.
            replies: see ``extend``.
            tools: those the conversation was opened with.

        Returns:
            Ids of the context of the next turn, int32 [T]; ``None`` where ``extend`` is the way on, which is always so for a
            format under which a conversation only grows.
        """
        ...

    def read(self, ids: np.ndarray, turn: int = 0, tools: Sequence[ToolSpec] = ()) -> Message:
        """One sampled turn as an assistant message. Never raises.

        Args:
            ids: the sampled ids of the turn, [N].
            turn: number of the turn in its episode; call ids are made of it and of the call's place in the turn.
            tools: those the conversation was opened with, for formats that do not write the types of arguments.

        Returns:
            The message. Text that opened a call but is none, or was cut, is a ``BadCall`` under its own id. Calls sketched
            inside a reasoning block are text. A turn that ended on a stop string has it in its text, and a call is whole where
            the format's own mark ended it before.
        """
        ...

    def encode(self, text: str) -> np.ndarray:
        """A text that is no conversation as ids, int32 [T], begun as the tokenizer begins one.

        Raises:
            ValueError: it cannot be written in this vocabulary.
        """
        ...

    def decode(self, ids: np.ndarray) -> str:
        """Any ids as text for people, special tokens shown."""
        ...


def call_id(turn: int, index: int) -> str:
    """Id of the call at a place of a turn: unique within its episode and the same in every run."""
    return f"call-{turn}-{index}"


def reply_counter(chat: Chat) -> Callable[[str], int]:
    """Counts the tokens that a text takes in a tool's reply, those of the template around it left out."""

    def count(text: str) -> int:
        return _reply_length(chat, text) - _reply_length(chat, "")

    return count


def _reply_length(chat: Chat, text: str) -> int:
    return len(chat.extend([Message("tool", text, call_id=call_id(0, 0))]))

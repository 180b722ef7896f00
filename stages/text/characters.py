"""A vocabulary of single characters and a few marks, for policies trained from scratch where every token costs.

Not a chat format: ``compact.py`` is. The ids are a pure function of the tool names, so a model and its vocabulary cannot part.
"""

from collections.abc import Iterable, Sequence

import numpy as np

MARKS = ("<|pad|>", "<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz +-*/%()=<>?.,:;'_"


class CharacterVocabulary:
    """Seven marks, one token per tool, and 54 characters, in this order."""

    def __init__(self, tools: Sequence[str] = ()):
        """Lay out the vocabulary.

        Args:
            tools: names of the tools that get a token, in the order of their ids.

        Raises:
            ValueError: a name occurs twice or is also a mark.
        """
        self.tokens: tuple[str, ...] = (*MARKS, *(f"<|{name}|>" for name in tools), *CHARACTERS)
        if len(set(self.tokens)) != len(self.tokens):
            raise ValueError(
                f"expected tool names that differ from each other and from {', '.join(MARKS)}; got {list(tools)}, "
                "in CharacterVocabulary(tools); rename one of them"
            )
        self._id_of = {token: index for index, token in enumerate(self.tokens)}
        self.first_character = len(MARKS) + len(tools)

    def __len__(self) -> int:
        return len(self.tokens)

    def mark(self, token: str) -> int:
        """Id of a mark such as ``<|end|>``, or of a tool's token such as ``<|calculator|>``."""
        return self._id_of[token]

    def encode(self, text: str, where: str) -> np.ndarray:
        """Characters as ids, int32 [N]. Marks spelt out in the text stay plain characters.

        Args:
            text: what to encode.
            where: what the text is, for the message of an error.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        for position, character in enumerate(text):
            if character not in CHARACTERS:
                raise ValueError(
                    f"expected characters among {CHARACTERS!r}; got {character!r} at position {position} of {text[:80]!r}, "
                    f"in {where}; rewrite the text or use a chat with a full tokenizer"
                )
        return np.array([self._id_of[character] for character in text], np.int32)

    def nearest(self, text: str) -> str:
        """The text with capitals lowered, white space as blanks, and every other unknown character as ``?``."""
        return "".join(_nearest(character) for character in text)

    def decode(self, ids: Iterable[int]) -> str:
        """Ids as text; an id outside the vocabulary shows as ``<|id|>``."""
        return "".join(self.tokens[i] if 0 <= i < len(self.tokens) else f"<|{i}|>" for i in map(int, ids))


def _nearest(character: str) -> str:
    lowered = character.lower()
    if lowered in CHARACTERS:
        return lowered
    return " " if character.isspace() else "?"

"""A tokenizer's own chat template as a function: messages in, text and ids out. Knows nothing of turns (``frame.py`` does)."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_SPLIT = "\ue000"
"""Stands inside and behind foreign marks between rendering and encoding. For private use: no text means anything by it."""
_FOREIGN = re.compile(f"(.{_SPLIT}[^{_SPLIT}]*{_SPLIT})", re.DOTALL)
Written = Mapping[str, Any]
"""A message as templates take it."""


class TemplateRefusal(ValueError):
    """The template cannot write these messages; the text is its own complaint."""


class Rendering:
    """A transformers fast tokenizer and its Jinja template."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast"):
        self._tokenizer = tokenizer
        self.specials = frozenset(tokenizer.all_special_ids) | frozenset(tokenizer.added_tokens_decoder)
        begin = tokenizer.bos_token_id
        marks = {added.content for added in tokenizer.added_tokens_decoder.values() if added.special and len(added.content) > 1}
        self._marks = re.compile("|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True)) or r"(?!)")
        self._begin = begin if begin is not None and tokenizer("x")["input_ids"][:1] == [begin] else None

    @property
    def name(self) -> str:
        """Of the tokenizer, for messages."""
        return str(self._tokenizer.name_or_path) or "this tokenizer"

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return len(self._tokenizer)

    def text(self, messages: Sequence[Written], tools: Sequence[Any] = (), *, prompt: bool) -> str:
        """Messages as the template writes them.

        Args:
            messages: the conversation.
            tools: functions to show, as the template takes them.
            prompt: add what asks for the next assistant turn.

        Raises:
            TemplateRefusal: the template raised.
        """
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages), tools=list(tools) or None, add_generation_prompt=prompt, tokenize=False
                )
            )
        # A template is a program of somebody else's: besides its own complaints it raises whatever a program can.
        except Exception as error:
            raise TemplateRefusal(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error

    def foreign(self, text: str) -> str:
        """A text from outside, for a message: special tokens spelt out in it will be encoded as the letters they are.

        Whoever writes a task, or a page that a tool reads, cannot end a turn or begin one.
        """
        return self._marks.sub(lambda match: f"{match.group()[0]}{_SPLIT}{match.group()[1:]}{_SPLIT}", text.replace(_SPLIT, ""))

    def encode(self, text: str) -> list[int]:
        """Text as ids; marks spelt out in it are special tokens, but for ``foreign`` ones, and nothing is added."""
        return self.located(text)[0]

    def located(self, text: str) -> tuple[list[int], list[int]]:
        """Ids of a text, and where each begins in it."""
        ids: list[int] = []
        starts: list[int] = []
        place = 0
        for piece in _FOREIGN.split(text) if _SPLIT in text else [text]:
            letters = piece.replace(_SPLIT, "")
            encoded = self._tokenizer(
                letters, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=letters != piece
            )
            ids += encoded["input_ids"]
            starts += [place + start for start, _ in encoded["offset_mapping"]]
            place += len(piece)
        return ids, starts

    def begun(self, ids: list[int]) -> list[int]:
        """Ids of a whole conversation: where the template writes no begin token and the tokenizer's rule adds one, with it."""
        return ids if self._begin is None or ids[:1] == [self._begin] else [self._begin, *ids]

    def decode(self, ids: np.ndarray | Sequence[int]) -> str:
        """Ids as text, special tokens shown. Ids outside the vocabulary (a model may have spare rows) give no text."""
        known = [i for i in map(int, ids) if 0 <= i < self.vocab_size]
        return str(self._tokenizer.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False))

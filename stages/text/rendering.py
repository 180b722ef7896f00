"""A tokenizer's own chat template as a function: messages in, text and ids out. Knows nothing of turns (``frame.py`` does)."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.text.formats.scan import THINK_CLOSE, THINK_OPEN
from stages.text.letters import Letters, plain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
        special = {
            added.content for added in tokenizer.added_tokens_decoder.values() if added.special and len(added.content) > 1
        }
        self._special = Letters(special - _REASONING)
        self._letters = Letters(special | _meant(tokenizer))
        bare = (added.content for added in tokenizer.added_tokens_decoder.values() if added.special and not added.rstrip)
        self._ahead = next(bare, "")
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
        """A text from outside, for a message: marks spelt out in it will be encoded as the letters they are.

        Whoever writes a task, or a page that a tool reads, cannot end a turn or begin one, nor open a call or reasoning.
        """
        return self._letters.spell(text)

    def authored(self, text: str) -> str:
        """A text of who writes the graph, or a demonstration: special tokens spelt out in it are letters.

        Those around reasoning, and tokens that are not special, such as those around calls in many tokenizers, may be meant.
        """
        return self._special.spell(text)

    def heard(self, ids: np.ndarray | Sequence[int]) -> str:
        """What a policy said, for a message: marks that it sampled as tokens are tokens again, those it spelt are letters."""
        text = self.decode(ids)
        if self._letters.pattern.search(text) is None:
            return text
        runs = [list(run) for _, run in itertools.groupby(map(int, ids), self.specials.__contains__)]
        parts = [self.decode(run) if run[0] in self.specials else self._letters.spell(self.decode(run)) for run in runs]
        # Where a decoder makes other text of the parts than of the whole, nobody can say which mark is which: all are letters.
        return "".join(parts) if plain("".join(parts)) == plain(text) else self._letters.spell(text)

    def encode(self, text: str) -> list[int]:
        """Text as ids; marks spelt out in it are special tokens, but for ``foreign`` ones, and nothing is added."""
        return self.located(text)[0]

    def located(self, text: str) -> tuple[list[int], list[int]]:
        """Ids of a text, and where each begins in it."""
        ids: list[int] = []
        starts: list[int] = []
        for number, (place, part) in enumerate(self._letters.parts(text)):
            # Behind a token, so that a tokenizer which begins a text with a space does not begin each part with one.
            ahead = self._ahead if number else ""
            encoded = self._tokenizer(ahead + part, add_special_tokens=False, return_offsets_mapping=True)
            ids += encoded["input_ids"][bool(ahead) :]
            starts += [place + start - len(ahead) for start, _ in encoded["offset_mapping"]][bool(ahead) :]
        return ids, starts

    def begun(self, ids: list[int]) -> list[int]:
        """Ids of a whole conversation: where the template writes no begin token and the tokenizer's rule adds one, with it."""
        return ids if self._begin is None or ids[:1] == [self._begin] else [self._begin, *ids]

    def decode(self, ids: np.ndarray | Sequence[int]) -> str:
        """Ids as text, special tokens shown. Ids outside the vocabulary (a model may have spare rows) give no text."""
        known = [i for i in map(int, ids) if 0 <= i < self.vocab_size]
        return str(self._tokenizer.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _meant(tokenizer: "PreTrainedTokenizerFast") -> set[str]:
    """Added tokens that are not special, yet mean something: those the template writes, of reasoning, and between bars.

    The others are text like any other, such as the runs of white space and the HTML tags of some tokenizers.
    """
    template = str(tokenizer.chat_template)
    listed = {added.content for added in tokenizer.added_tokens_decoder.values() if len(added.content.strip()) > 1}
    return {mark for mark in listed if mark in template or mark in _REASONING or mark[1] + mark[-2] in _BARS}


_REASONING = {THINK_OPEN, THINK_CLOSE}
_BARS = ("||", "｜｜")

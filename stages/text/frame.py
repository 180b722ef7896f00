"""What a chat template puts around assistant turns, learned by rendering conversations of marked words. Pure but for rendering.

The template is never run over sampled turns. A turn's end is the first special token behind a word that only the turn has; what
comes behind that token is text between turns. Since a special token is never merged with its neighbours, the ids behind it are
the same whatever was in front, which is checked for the template at hand. How the template writes a call is tried in the four
ways that templates want them (arguments as an object or as its JSON, content empty or none).
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.records import ToolCall
from stages.text.calls import parse_calls
from stages.text.formats.call_format import CallFormat
from stages.text.rendering import Rendering, TemplateRefusal, Written

ASKED: Written = {"role": "user", "content": "alpha"}
SAID = "brav0-said"
ANSWERED = "charlie"
ASKED_AGAIN: Written = {"role": "user", "content": "delta"}
THOUGHT = "ech0-thought"
_REASONED = {"reasoning_content": THOUGHT}
_CALLED = "f0xtrot-called"
_NAME = "golf"


@dataclass(frozen=True)
class CallStyle:
    """How a template takes structured calls.

    Attributes:
        as_json: arguments as the text of their JSON, not as an object.
        empty: the content beside calls where there is none.
        reasoning: it takes reasoning in a field of its own.
    """

    as_json: bool
    empty: str | None
    reasoning: bool

    def written(self, calls: Sequence[tuple[str, Mapping[str, Any]]], content: str = "") -> dict[str, Any]:
        """An assistant message with calls, as (name, arguments)."""
        return {
            "role": "assistant",
            "content": content or self.empty,
            "tool_calls": [
                {"id": wire_id(index), "type": "function", "function": {"name": name, "arguments": self._arguments(arguments)}}
                for index, (name, arguments) in enumerate(calls)
            ],
        }

    def _arguments(self, arguments: Mapping[str, Any]) -> Any:
        return json.dumps(arguments, ensure_ascii=False) if self.as_json else dict(arguments)


def wire_id(index: int) -> str:
    """Id of a call as templates see it. Nine letters and digits, since Mistral's take no other."""
    return f"call{index:05d}"


def learn_calls(rendering: Rendering, formats: Sequence[CallFormat]) -> tuple[CallStyle, CallFormat, bool] | None:
    """How the template takes calls, and which of the formats it writes them in.

    A format is taken only if what the template wrote is read back as exactly the call that was meant.

    Returns:
        Style, format, and whether the format writes to the letter what the template does; ``None`` where the template writes no
        call that any of the formats reads.
    """
    reasoning = THOUGHT in rendering.text([ASKED, {"role": "assistant", "content": SAID, **_REASONED}], prompt=False)
    arguments = {"hotel": _CALLED, "india": {"n": [1, 2.5, True, None, "é"]}}
    meant = ToolCall("call-0-0", _NAME, arguments)
    schemas = {_NAME: {"properties": {"india": {"type": "object"}}}}
    for as_json, empty in itertools.product((False, True), (None, "")):
        style = CallStyle(as_json, empty, reasoning)
        try:
            turns = list(_turns(rendering, style.written([(_NAME, arguments)])))
        except TemplateRefusal:
            continue
        for each in formats:
            if any(parse_calls(turn, 0, each, schemas=schemas)[1] == (meant,) for turn in turns):
                return style, each, _can_write(each, meant) in turns[0]
    return None


def _turns(rendering: Rendering, message: Written) -> Iterator[str]:
    """Text of a turn: all behind what it has in common with the generation prompt, then less and less of what may close it."""
    opened = rendering.encode(rendering.text([ASKED], prompt=True))
    whole = rendering.encode(rendering.text([ASKED, message], prompt=False))
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(opened, whole, strict=False)))
    stop = len(whole)
    yield rendering.decode(whole[common:])
    for index in reversed(range(common, len(whole))):
        if rendering.decode(whole[index + 1 : stop]).strip():
            return
        if whole[index] in rendering.specials:
            stop = index
            yield rendering.decode(whole[common:stop])


def _can_write(each: CallFormat, call: ToolCall) -> str:
    try:
        return each.write([call])
    except ValueError:
        return "\0"


class Frame:
    """The text between turns, by ids."""

    def __init__(self, rendering: Rendering, style: CallStyle | None):
        """Learn it.

        Args:
            rendering: the template.
            style: how it takes calls; ``None`` where it writes none.

        Raises:
            ValueError: what an assistant says is not in the rendering once, no special token ends a turn, or the ids behind it
                depend on what is in front.
        """
        self._rendering = rendering
        self._style = style
        said = {"role": "assistant", "content": SAID}
        self.end = self._end_of([ASKED, said, ASKED_AGAIN], SAID, prompt=True)
        self.last_end = self._end_of([ASKED, said], SAID, prompt=False)
        self.call_end, self._num_call_ends, self.parallel = self.end, 1, False
        said_calls = style is not None and _accepts(rendering, self._answered(1), 1)
        self.knows_tools = said_calls or _accepts(rendering, [ASKED, said, *_tools(1)], 1)
        if said_calls:
            self.call_end, self._num_call_ends = self._call_end(self._answered(1))
            self.parallel = _accepts(rendering, self._answered(2), 2)
        self._check_seam([ASKED, said, ASKED_AGAIN], SAID, self.end)

    def after_text(self, replies: Sequence[Written]) -> list[int]:
        """Ids behind the end token of a turn of text, up to the next turn.

        Raises:
            TemplateRefusal: the template does not write such replies.
        """
        messages = [ASKED, {"role": "assistant", "content": SAID}, *replies]
        return self._behind(self._rendering.text(messages, prompt=True), SAID, self.end, 1)

    def after_calls(self, names: Sequence[str], replies: Sequence[Written]) -> list[int]:
        """Ids behind the end token of a turn with calls.

        Args:
            names: of the tools called, in order, at least one.
            replies: the tools' first, in the order of the calls; then any others.

        Raises:
            TemplateRefusal: the template does not write such replies.
        """
        assert self._style is not None, "only a template that writes calls is asked"
        # A template that takes one call a turn gets one; its replies are as many as there are.
        messages = [ASKED, self._style.written(_marked(names if self.parallel else names[:1])), *replies]
        return self._behind(self._rendering.text(messages, prompt=True), _CALLED, self.call_end, self._num_call_ends)

    def _answered(self, count: int) -> list[Written]:
        assert self._style is not None
        return [ASKED, self._style.written(_marked([_NAME] * count)), *_tools(count)]

    def _behind(self, text: str, word: str, end: int, count: int) -> list[int]:
        """Ids behind the ``count``-th end token behind a word."""
        ids, starts = self._rendering.located(text)
        place = text.find(word)
        pairs = enumerate(zip(ids, starts, strict=True))
        ends = [index for index, (token, start) in pairs if token == end and start >= place + len(word)]
        if place < 0 or len(ends) < count:
            raise TemplateRefusal("what was said before the replies is not in the rendering")
        return ids[ends[count - 1] + 1 :]

    def _end_of(self, messages: Sequence[Written], word: str, *, prompt: bool) -> int:
        text = self._rendering.text(messages, prompt=prompt)
        if text.count(word) != 1:
            raise self._unusable(f"what an assistant says is in the rendering {text.count(word)} times, not once")
        token, start = next(self._specials_behind(text, word), (None, len(text)))
        between = text[text.find(word) + len(word) : start]
        if token is None or between.strip():
            raise self._unusable(f"an assistant turn is followed by {between[:40]!r}, and by no special token that ends it")
        return token

    def _call_end(self, answered: Sequence[Written]) -> tuple[int, int]:
        """The token that ends a turn with calls: the usual one, or the first special one where that does not come.

        And how many of it come before the replies: DeepSeek-R1's template adds an empty turn, which belongs to no conversation.
        """
        text = self._rendering.text(answered, prompt=True)
        reply = text.rfind(ANSWERED)
        found = [token for token, start in self._specials_behind(text, _CALLED) if start < reply]
        usual = [token for token in found if token in (self.end, self.last_end)]
        if not found:
            raise self._unusable("no special token ends a turn with calls")
        end = (usual or found)[0]
        return end, found.count(end)

    def _specials_behind(self, text: str, word: str) -> Iterator[tuple[int, int]]:
        ids, starts = self._rendering.located(text)
        behind = text.find(word) + len(word)
        pairs = zip(ids, starts, strict=True)
        return ((token, start) for token, start in pairs if start >= behind and token in self._rendering.specials)

    def _check_seam(self, messages: Sequence[Written], word: str, end: int) -> None:
        text = self._rendering.text(messages, prompt=True)
        start = next(start for token, start in self._specials_behind(text, word) if token == end)
        parts = self._rendering.encode(text[:start]) + self._rendering.encode(text[start:])
        if parts != self._rendering.encode(text):
            raise self._unusable("the ids behind the end of a turn depend on the text in front of it")

    def _unusable(self, got: str) -> ValueError:
        return ValueError(
            f"expected a chat template whose turns can be told apart; got one where {got}, in TemplateChat over "
            f"{self._rendering.name}; use the model's own template, or one with an end-of-turn token"
        )


def _marked(names: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Calls of which the last can be found again."""
    return [(name, {"hotel": _CALLED if index + 1 == len(names) else "x"}) for index, name in enumerate(names)]


def _tools(count: int) -> list[Written]:
    return [{"role": "tool", "content": ANSWERED, "tool_call_id": wire_id(n), "name": _NAME} for n in range(count)]


def _accepts(rendering: Rendering, messages: Sequence[Written], replies: int) -> bool:
    """Whether the template writes the last call, and so many replies: some leave out what they do not know without a word."""
    try:
        text = rendering.text(messages, prompt=True)
    except TemplateRefusal:
        return False
    return (_CALLED in text or SAID in text) and text.count(ANSWERED) == replies

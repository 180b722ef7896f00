"""Chats over a pretrained model's tokenizer and its own Jinja chat template, by token ids.

The template is never run over sampled turns. What it puts around them is found once, by rendering a sentinel conversation and
comparing tokens, and the assumption behind it is checked when the object is made: the rendering of a conversation with an
assistant turn is the generation prompt, the turn's own tokens, one special end token, and text after it; and adding replies
leaves all of that as it was. A template for which it does not hold is refused, since training on ids appended under it would
differ from what the template shows the model.

Calls are in the Hermes format (``calls.py``), whatever the template would make of structured calls: a turn with calls is plain
text to the template.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.records import Message, ToolCall
from stages.text.calls import parse_calls, write_call
from stages.text.chat import ToolSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_ASKED = {"role": "user", "content": "alpha"}
_SAID = {"role": "assistant", "content": "bravo"}
_ANSWERED = {"role": "tool", "content": "charlie"}
_ASKED_AGAIN = {"role": "user", "content": "delta"}
_THOUGHT = {"role": "assistant", "content": "<think>\necho\n</think>\n\nbravo"}
_TOOL = {"type": "function", "function": {"name": "foxtrot", "description": "golf", "parameters": {"type": "object"}}}


class TemplateChat:
    """A transformers fast tokenizer with a chat template."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", *, keep_reasoning: bool = False, also_stop: tuple[int, ...] = ()):
        """Learn the template's frame and check it.

        Args:
            tokenizer: carries the template.
            keep_reasoning: accept a template that drops reasoning from earlier turns once the user speaks again; episodes
                then keep it, because ids are only appended. False refuses such a template.
            also_stop: more tokens that end a turn, beside the template's own.

        Raises:
            ValueError: there is no template, or it rewrites what came before.
        """
        self._tokenizer = tokenizer
        opened = self._render([_ASKED], prompt=True)
        turn = self._render([_ASKED, _SAID])
        content = self._encode(_SAID["content"])
        frame = [*opened, *content]
        if turn[: len(frame)] != frame or len(turn) == len(frame):
            raise self._refused("an assistant turn is not rendered as the generation prompt followed by its own tokens")
        self._end = turn[len(frame)]
        if self._end not in self._tokenizer.all_special_ids and self._end not in self._tokenizer.added_tokens_decoder:
            raise self._refused(
                f"an assistant turn ends with {self.decode(np.array([self._end]))!r}, which is no special token"
            )
        self._before = turn[: len(frame) + 1]
        self.stop_ids = tuple(dict.fromkeys((self._end, *also_stop)))
        self._check_history(keep_reasoning)
        self._shows_tools = self._render([_ASKED], tools=[_TOOL]) != self._render([_ASKED])

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return len(self._tokenizer)

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> np.ndarray:
        """See ``Chat.open``. A template that ignores tools gets them in the system message.

        Where the template writes no begin token and the tokenizer's own rule adds one, it is added once.
        """
        written = [{"role": message.role, "content": self._text(message)} for message in messages]
        specs = [{"type": "function", "function": _function(tool)} for tool in tools]
        if specs and not self._shows_tools:
            written, specs = _described(written, specs), []
        return np.array(self._render(written, tools=specs or None, prompt=True), np.int32)

    def write(self, message: Message) -> np.ndarray:
        """See ``Chat.write``."""
        if message.role != "assistant":
            raise ValueError(f"expected an assistant message; got role {message.role!r}, in TemplateChat.write; use extend")
        return np.array([*self._encode(self._text(message)), self._end], np.int32)

    def extend(self, replies: Sequence[Message], *, closed: bool = True) -> np.ndarray:
        """See ``Chat.extend``: what the template renders after the sentinel turn."""
        written = [{"role": reply.role, "content": reply.content} for reply in replies]
        end = [] if closed else [self._end]
        return np.array([*end, *self._after_turn(written, prompt=True)], np.int32)

    def read(self, ids: np.ndarray, turn: int = 0) -> Message:
        """See ``Chat.read``."""
        tokens = [int(i) for i in ids]
        if tokens and tokens[-1] in self.stop_ids:
            tokens = tokens[:-1]
        content, calls = parse_calls(self.decode(np.array(tokens, np.int64)), turn)
        return Message("assistant", content, calls)

    def decode(self, ids: np.ndarray) -> str:
        """See ``Chat.decode``. Ids outside the vocabulary (a model may have spare rows) give no text."""
        known = [i for i in map(int, ids) if 0 <= i < self.vocab_size]
        return str(self._tokenizer.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _text(self, message: Message) -> str:
        calls = [write_call(call.name, call.arguments) for call in message.calls if isinstance(call, ToolCall)]
        if len(calls) != len(message.calls):
            raise ValueError(f"expected calls that can be written; got {message.calls}, in TemplateChat; remove the bad call")
        return "\n".join([message.content, *calls] if message.content else calls)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _render(self, messages: list[dict[str, str]], tools: list[Any] | None = None, *, prompt: bool = False) -> list[int]:
        ids = self._tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=prompt, return_dict=False)
        begin = self._tokenizer.bos_token_id
        if begin is not None and ids[:1] != [begin] and self._tokenizer("x")["input_ids"][:1] == [begin]:
            return [begin, *ids]
        return list(ids)

    def _after_turn(self, replies: list[dict[str, str]], *, prompt: bool) -> list[int]:
        ids = self._render([_ASKED, _SAID, *replies], prompt=prompt)
        if ids[: len(self._before)] != self._before:
            raise self._refused(f"the replies {str(replies)[:120]} change what is rendered before them")
        return ids[len(self._before) :]

    def _check_history(self, keep_reasoning: bool) -> None:
        for reply in (_ANSWERED, _ASKED_AGAIN):
            self._after_turn([reply], prompt=True)
        if keep_reasoning:
            return
        thought = [*self._render([_ASKED], prompt=True), *self._encode(_THOUGHT["content"]), self._end]
        for reply in (_ANSWERED, _ASKED_AGAIN):
            if self._render([_ASKED, _THOUGHT, reply])[: len(thought)] != thought:
                raise self._refused(
                    f"reasoning is dropped from a turn once a {reply['role']} message follows it",
                    "pass keep_reasoning=True to train on episodes that keep it",
                )

    def _refused(self, got: str, remedy: str = "use a template that only appends") -> ValueError:
        return ValueError(
            f"expected a chat template under which a conversation only grows; got one where {got}, in TemplateChat over "
            f"{self._tokenizer.name_or_path or 'this tokenizer'}; {remedy}"
        )


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _described(messages: list[dict[str, str]], specs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The messages, with the tools in the system message. Source: the prompt of Hermes-Function-Calling, shortened."""
    lines = "\n".join(json.dumps(spec["function"], ensure_ascii=False) for spec in specs)
    text = (
        f"You may call these functions:\n<tools>\n{lines}\n</tools>\n"
        f"To call one, write\n{write_call('NAME', {'ARGUMENT': 'VALUE'})}"
    )
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]

"""A chat format of few tokens, over the character vocabulary: one mark opens a message, one token opens a call.

Not for pretrained models (``template.py`` is). A whole episode reads
``<|bos|><|user|>12*34<|assistant|><|calculator|>12*34<|end|><|tool|>408<|assistant|>408<|end|>``: only sampled turns need an
end token, since the next mark ends any other message. What the policy reads of a bad call is kept short for the same reason.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from stages.records import BadCall, Message, ToolCall
from stages.text.characters import CharacterVocabulary
from stages.text.chat import ToolSpec, call_id
from stages.text.transcript import Transcript


class CompactChat:
    """A call is its tool's token and the text of the tool's one argument, up to the next call or the end token."""

    def __init__(self, tools: Sequence[ToolSpec] = ()):
        """Give each tool a token.

        Args:
            tools: every tool that any conversation of the run will have, each with exactly one string parameter.

        Raises:
            ValueError: a tool has another signature.
        """
        self.vocabulary = CharacterVocabulary([tool.name for tool in tools])
        self._argument = {tool.name: _only_argument(tool) for tool in tools}
        self._tool_of = {self.vocabulary.mark(f"<|{name}|>"): name for name in self._argument}
        self._end = self.vocabulary.mark("<|end|>")
        self.stop_ids = (self._end,)
        self.pad_id = self.vocabulary.mark("<|pad|>")

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.vocabulary)

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> np.ndarray:
        """See ``Chat.open``. Tools are not described: the policy learns their tokens.

        Raises:
            ValueError: a character is not in the vocabulary, or a tool has no token here.
        """
        unknown = [tool.name for tool in tools if tool.name not in self._argument]
        if unknown:
            raise ValueError(
                f"expected tools among {sorted(self._argument)}; got {unknown}, in CompactChat.open; "
                "give CompactChat every tool of the run when it is made"
            )
        written = [self._message(message) for message in messages]
        return _joined([[self.vocabulary.mark("<|bos|>")], *written, [self.vocabulary.mark("<|assistant|>")]])

    def write(self, message: Message) -> np.ndarray:
        """See ``Chat.write``."""
        if message.role != "assistant":
            raise ValueError(f"expected an assistant message; got role {message.role!r}, in CompactChat.write; use extend")
        parts: list[Sequence[int] | np.ndarray] = [self.vocabulary.encode(message.content, "an assistant message")]
        for call in message.calls:
            parts += self._call(call)
        return _joined([*parts, [self._end]])

    def extend(self, replies: Sequence[Message], *, closed: bool = True, said: Message | None = None) -> np.ndarray:
        """See ``Chat.extend``. Nothing but its end token closes a turn here.

        A reply comes from outside the program, so it never fails here: capitals are lowered and a character that is not in
        the vocabulary is written as ``?``.
        """
        written = [
            [
                self.vocabulary.mark(f"<|{reply.role}|>"),
                *self.vocabulary.encode(self.vocabulary.nearest(reply.content), "a reply"),
            ]
            for reply in replies
        ]
        end = [] if closed else [self._end]
        return _joined([end, *written, [self.vocabulary.mark("<|assistant|>")]])

    def fork(self, transcript: Transcript, replies: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """See ``Chat.fork``: a conversation only grows here."""

    def read(self, ids: np.ndarray, turn: int = 0, tools: Sequence[ToolSpec] = ()) -> Message:
        """See ``Chat.read``."""
        tokens = [int(i) for i in ids]
        complete = bool(tokens) and tokens[-1] in self.stop_ids
        body = tokens[:-1] if complete else tokens
        starts = [place for place, token in enumerate(body) if token in self._tool_of]
        content = body[: starts[0]] if starts else body
        calls = []
        for index, (start, stop) in enumerate(itertools.pairwise([*starts, len(body)])):
            whole = complete or index + 1 < len(starts)
            calls.append(self._read_call(call_id(turn, index), body[start], body[start + 1 : stop], whole))
        return Message("assistant", self.decode(np.array(content, np.int64)), tuple(calls))

    def encode(self, text: str) -> np.ndarray:
        """See ``Chat.encode``. Marks that are spelt out in it stay characters."""
        return _joined([[self.vocabulary.mark("<|bos|>")], self.vocabulary.encode(text, "a text")])

    def decode(self, ids: np.ndarray) -> str:
        """See ``Chat.decode``."""
        return self.vocabulary.decode(ids)

    def _read_call(self, name_id: str, tool: int, argument: list[int], whole: bool) -> ToolCall | BadCall:
        name = self._tool_of[tool]
        if not whole:
            return BadCall(name_id, "the call was cut off")
        if not argument:
            return BadCall(name_id, "expected text, got none")
        if not all(self.vocabulary.first_character <= token < self.vocab_size for token in argument):
            return BadCall(name_id, "expected text, got a mark")
        return ToolCall(name_id, name, {self._argument[name]: self.vocabulary.decode(argument)})

    def _message(self, message: Message) -> np.ndarray:
        mark = [self.vocabulary.mark(f"<|{message.role}|>")]
        if message.role == "assistant":
            return _joined([mark, self.write(message)])
        return _joined([mark, self.vocabulary.encode(message.content, f"a {message.role} message")])

    def _call(self, call: ToolCall | BadCall) -> list[Sequence[int] | np.ndarray]:
        if isinstance(call, BadCall) or set(call.arguments) != {self._argument.get(call.name)}:
            raise ValueError(
                f"expected a call of one of {self._argument} (tool: argument); got {call}, in CompactChat.write; "
                "give CompactChat the tool, or correct the call"
            )
        argument = str(call.arguments[self._argument[call.name]])
        return [[self.vocabulary.mark(f"<|{call.name}|>")], self.vocabulary.encode(argument, f"the call of {call.name}")]


def _only_argument(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties", {})
    if len(properties) != 1 or next(iter(properties.values())).get("type") != "string":
        raise ValueError(
            f"expected a tool with exactly one string parameter; got {tool.name} with {properties}, in CompactChat(tools); "
            "wrap the tool, or use TemplateChat, whose calls are JSON"
        )
    return str(next(iter(properties)))


def _joined(parts: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.int32) for part in parts])

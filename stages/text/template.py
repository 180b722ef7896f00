"""Chats over a pretrained model's tokenizer and its own Jinja chat template, by token ids.

The template is never run over sampled turns: what it puts between them is learned by ``frame.py`` from marked conversations,
and appended. So no token ever changes, whatever the template would make of history. What it would make of it is probed once
(``rewrites``); with ``history="fork"`` the next turn is then sampled from the template's own rendering, as a new training row,
and otherwise from what was there. docs/templates.md tells which templates rewrite what.
"""

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stages.records import Message, ToolCall
from stages.text.calls import FORMATS, FormatName, format_named, parse_calls
from stages.text.chat import ToolSpec
from stages.text.formats.call_format import CallFormat
from stages.text.formats.scan import THINK_CLOSE, THINK_OPEN
from stages.text.frame import Frame, learn_calls
from stages.text.letters import plain
from stages.text.rendering import Rendering, TemplateRefusal, Written
from stages.text.rewriting import find_rewrites
from stages.text.transcript import Transcript
from stages.text.written import Writer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_TOOL = {"type": "function", "function": {"name": "foxtrot", "description": "golf", "parameters": {"type": "object"}}}
_ASKED: Written = {"role": "user", "content": "alpha"}


class TemplateChat:
    """A transformers fast tokenizer with a chat template."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        *,
        also_stop: tuple[int, ...] = (),
        calls: FormatName | None = None,
        history: Literal["append", "fork"] = "append",
    ):
        """Learn what the template puts around turns, and check it.

        Args:
            tokenizer: carries the template.
            also_stop: more tokens that end a turn, beside the template's own.
            calls: name of the format of tool calls (``calls.FORMATS``); ``None`` takes the one the template writes structured
                calls in, or Hermes' where it writes none.
            history: where the template would now write differently what came before: ``append`` goes on from what the policy
                saw and said, and says so once in the log, ``fork`` begins a new training row with the template's own rendering.

        Raises:
            ValueError: there is no such format, or turns cannot be told apart in what the template writes.
        """
        self._rendering = Rendering(tokenizer)
        self._history = history
        self._told = False
        formats = tuple(FORMATS.values()) if calls is None else (format_named(calls),)
        learned = learn_calls(self._rendering, formats)
        self._style, self.call_format, verbatim = learned or (None, format_named(calls or "hermes"), True)
        self._writer = Writer(self._style, self.call_format, self._rendering)
        self._frame = Frame(self._rendering, self._style)
        ends = (self._frame.end, self._frame.last_end, self._frame.call_end, *also_stop)
        self.stop_ids = tuple(dict.fromkeys(ends))
        self._shows_tools = self._rendering.text([_ASKED], [_TOOL], prompt=True) != self._rendering.text([_ASKED], prompt=True)
        opened = self._rendering.text([_ASKED], prompt=True)
        self._thinking = opened.rfind(THINK_OPEN) > opened.rfind(THINK_CLOSE)
        self.rewrites: tuple[str, ...] = find_rewrites(
            self._rendering, self._frame, self._style, _TOOL if self._shows_tools else None, verbatim=verbatim
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return self._rendering.vocab_size

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> np.ndarray:
        """See ``Chat.open``. A template that ignores tools gets them in the system message.

        Where the template writes no begin token and the tokenizer's own rule adds one, it is added once.
        """
        text = self._opening(messages, {}, tools)
        return np.array(self._rendering.begun(self._rendering.encode(text)), np.int32)

    def write(self, message: Message) -> np.ndarray:
        """See ``Chat.write``: as the template writes the turn, where it keeps all that is said in it."""
        if message.role != "assistant":
            raise ValueError(f"expected an assistant message; got role {message.role!r}, in TemplateChat.write; use extend")
        end = self._frame.call_end if message.calls else self._frame.last_end
        text = self._writer.plain(message)
        rendered = self._rendered_turn(message, end)
        if rendered is None and self._thinking:
            # The prompt has opened reasoning already.
            thought = text.removeprefix(THINK_OPEN).lstrip("\n")
            text = thought if THINK_CLOSE in text else f"{THINK_CLOSE}\n\n{text}"
        ids = [*self._rendering.encode(text), end] if rendered is None else rendered
        if message.calls and len(self.read(np.array(ids)).calls) != len(message.calls):
            raise ValueError(
                f"expected a turn whose calls are read back; got {message}, in TemplateChat.write with the format "
                f"{self.call_format.name}; leave out what is said beside the calls, or name another call format"
            )
        return np.array(ids, np.int32)

    def extend(self, replies: Sequence[Message], *, closed: bool = True, said: Message | None = None) -> np.ndarray:
        """See ``Chat.extend``: what the template writes between a marked turn and the next one.

        A template that knows no tools, or no two messages of a user in a row, gets the replies in one user message.
        """
        tools = [reply for reply in replies if reply.role == "tool"]
        called = self._style is not None and bool(tools)
        end = [] if closed else [self._frame.call_end if called else self._frame.end]
        try:
            if tools and not self._frame.knows_tools:
                raise TemplateRefusal("it does not know messages of tools")
            ordered = self._writer.replies([*tools, *(reply for reply in replies if reply.role != "tool")], said)
            names = self._writer.names(tools, said)
            ids = self._frame.after_calls(names, ordered) if called else self._frame.after_text(ordered)
        except TemplateRefusal:
            ids = self._folded(replies)
        return np.array([*end, *ids], np.int32)

    def fork(self, transcript: Transcript, replies: Sequence[Message], tools: Sequence[ToolSpec]) -> np.ndarray | None:
        """See ``Chat.fork``. A history that the template refuses is appended to.

        Under ``append`` the first difference is logged, once for a chat, and nothing is compared after that. Until then turns
        1, 2, 4, 8 and so on are: a difference stays as history grows, and to render it each time would cost its square.
        """
        num_turns = len(transcript.turns)
        if self._history == "append" and (self._told or num_turns & (num_turns - 1)):
            return None
        raw = {index: self._rendering.heard(self._without_stop(ids)) for index, ids in transcript.spoken()}
        try:
            text = self._opening([*transcript.messages, *replies], raw, tools)
        except ValueError:
            return None
        closed = transcript.last_id in self.stop_ids
        appended = self.extend(replies, closed=closed, said=transcript.messages[-1])
        goes_on = self._rendering.decode(np.concatenate([transcript.row_ids(), appended]))
        if plain(text) == goes_on:
            return None
        # Decoded as the other is, and with its begin token: what is left is a difference.
        ids = self._rendering.begun(self._rendering.encode(text))
        anew = self._rendering.decode(ids)
        if anew == goes_on:
            return None
        if self._history == "fork":
            return np.array(ids, np.int32)
        self._told = True
        _LOG.warning("%s", _drift(goes_on, anew, num_turns, self._rendering.name))
        return None

    def read(self, ids: np.ndarray, turn: int = 0, tools: Sequence[ToolSpec] = ()) -> Message:
        """See ``Chat.read``."""
        schemas = {tool.name: tool.parameters for tool in tools}
        text = self._rendering.decode(self._without_stop(ids))
        content, calls = parse_calls(text, turn, self.call_format, thinking=self._thinking, schemas=schemas)
        return Message("assistant", content, calls)

    def encode(self, text: str) -> np.ndarray:
        """See ``Chat.encode``. Marks that are spelt out in it are special tokens: who writes it writes the template too."""
        return np.array(self._rendering.begun(self._rendering.encode(text)), np.int32)

    def decode(self, ids: np.ndarray) -> str:
        """See ``Chat.decode``. Ids outside the vocabulary (a model may have spare rows) give no text."""
        return self._rendering.decode(ids)

    def _without_stop(self, ids: np.ndarray) -> np.ndarray:
        return ids[:-1] if len(ids) and int(ids[-1]) in self.stop_ids else ids

    def _opening(self, messages: Sequence[Message], raw: Mapping[int, str], tools: Sequence[ToolSpec]) -> str:
        specs = [{"type": "function", "function": self._writer.letters(_function(tool))} for tool in tools]
        try:
            return self._whole(messages, raw, specs, join=False)
        except TemplateRefusal as error:
            try:
                return self._whole(messages, raw, specs, join=True)
            except TemplateRefusal:
                raise self._refused("messages", messages, error, "rewrite the messages, or use another template") from error

    def _whole(self, messages: Sequence[Message], raw: Mapping[int, str], specs: Sequence[Any], *, join: bool) -> str:
        written = self._writer.history(messages, raw, fold=not self._frame.knows_tools, join=join)
        if specs and not self._shows_tools:
            written, specs = _described(written, specs, self.call_format), []
        return self._rendering.text(written, specs, prompt=True)

    def _refused(self, what: str, messages: Sequence[Message], error: TemplateRefusal, advice: str) -> ValueError:
        return ValueError(
            f"expected {what} that the chat template can write; got roles {[each.role for each in messages]}, on which "
            f"it says {error}, in TemplateChat over {self._rendering.name}; {advice}"
        )

    def _rendered_turn(self, message: Message, end: int) -> list[int] | None:
        """The turn as the template writes it; ``None`` where it refuses it, or leaves something out."""
        try:
            opened = self._rendering.encode(self._rendering.text([_ASKED], prompt=True))
            whole = self._rendering.encode(self._rendering.text([_ASKED, self._writer.turn(message)], prompt=False))
        except TemplateRefusal:
            return None
        if whole[: len(opened)] != opened or end not in whole[len(opened) :]:
            return None
        stop = len(whole) - whole[::-1].index(end)
        turn = whole[len(opened) : stop]
        content, calls = parse_calls(self._rendering.heard(turn[:-1]), 0, self.call_format, thinking=self._thinking)
        meant = [(call.name, call.arguments) for call in message.calls if isinstance(call, ToolCall)]
        # Where arguments have no types in the text, the names are what can be compared.
        got = [(call.name, _unspelt(call.arguments)) for call in calls if isinstance(call, ToolCall)]
        same = [c[0] for c in got] == [c[0] for c in meant] and (self.call_format.untyped or got == meant)
        kept = _squeezed(plain(content)).replace(_EMPTY_THOUGHT, "") == _squeezed(message.content).replace(_EMPTY_THOUGHT, "")
        return turn if same and kept else None

    def _folded(self, replies: Sequence[Message]) -> list[int]:
        try:
            return self._frame.after_text([self._writer.folded(replies)])
        except TemplateRefusal as error:
            raise self._refused("replies", replies, error, "answer with tool and user messages") from error


def _drift(goes_on: str, anew: str, turn: int, name: str) -> str:
    """What a reader of the log is told of the first difference."""
    start = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(goes_on, anew, strict=False)))
    before = max(0, start - _SHOWN)
    return (
        f"expected a conversation that only grows; got {anew[before : start + _SHOWN]!r} from the template where the policy "
        f"reads {goes_on[before : start + _SHOWN]!r}, before turn {turn + 1}, in TemplateChat over {name}; it is kept; "
        'set history="fork" to sample from what the template writes (told once)'
    )


_LOG = logging.getLogger(__name__)
_SHOWN = 40
_EMPTY_THOUGHT = THINK_OPEN + THINK_CLOSE


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _unspelt(arguments: Mapping[str, Any]) -> Any:
    return json.loads(plain(json.dumps(arguments, ensure_ascii=False)))


def _function(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _described(messages: Sequence[Written], specs: Sequence[Mapping[str, Any]], call_format: CallFormat) -> list[Written]:
    """The messages, with the tools in the system message. Source: the prompt of Hermes-Function-Calling, shortened."""
    lines = "\n".join(json.dumps(spec["function"], ensure_ascii=False) for spec in specs)
    example = call_format.write([ToolCall("", "NAME", {"ARGUMENT": "VALUE"})])
    text = f"You may call these functions:\n<tools>\n{lines}\n</tools>\nTo call one, write\n{example}"
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]

"""Records as the messages that chat templates take: calls in the template's style, or as text where it has none."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stages.records import Message, ToolCall
from stages.text.formats.call_format import CallFormat
from stages.text.frame import CallStyle, wire_id
from stages.text.letters import plain, slice_of
from stages.text.rendering import Rendering, Written

_PLAIN_NAME = re.compile(r"[\w.-]{1,64}")
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_FENCES = {"gemma": ("```tool_output\n", "\n```")}
_TAGS = ("<tool_response>\n", "\n</tool_response>")
"""What stands around a tool's reply that goes into a user message; fences of formats that have their own come first."""


class Writer:
    """Messages for one template."""

    def __init__(self, style: CallStyle | None, call_format: CallFormat, rendering: Rendering):
        """Keep how the template wants them.

        Args:
            style: how it takes calls; ``None`` where it writes none.
            call_format: how calls are written as text.
            rendering: says which texts are letters only.
        """
        self._style = style
        self._rendering = rendering
        self._format = call_format
        self._around = _FENCES.get(call_format.name, _TAGS)

    def plain(self, message: Message, content: str | None = None) -> str:
        """An assistant message as text, its calls in the call format.

        Args:
            message: what is said.
            content: its content as ``Rendering`` encodes it; ``None`` for one that nobody sampled.

        Raises:
            ValueError: a call is a bad one, or the format cannot hold it.
        """
        calls = [call for call in message.calls if isinstance(call, ToolCall)]
        if len(calls) != len(message.calls):
            raise ValueError(f"expected calls that can be written; got {message.calls}, in TemplateChat; remove the bad call")
        if calls:
            # Refused or not as the call it is, before anything is put into it.
            self._format.write(calls)
        written = self._format.write([self._call(call) for call in calls]) if calls else ""
        content = self._rendering.authored(message.content) if content is None else content
        return "\n".join(part for part in (content, written) if part)

    def turn(self, message: Message, content: str | None = None) -> Written:
        """An assistant message. Reasoning at its beginning goes where the template takes it apart.

        Args:
            message: what is said.
            content: see ``plain``.

        Raises:
            ValueError: as ``plain``.
        """
        content = self._rendering.authored(message.content) if content is None else content
        whole = self.plain(message, content)
        thought = _THOUGHT.match(content) if self._style is not None and self._style.reasoning else None
        if self._style is None or not (message.calls or thought):
            return {"role": "assistant", "content": whole}
        content = content[thought.end() :] if thought else content
        calls = [self._call(call) for call in message.calls if isinstance(call, ToolCall)]
        pairs = [(call.name, call.arguments) for call in calls]
        written = self._style.written(pairs, content) if pairs else {"role": "assistant", "content": content}
        return {**written, **({"reasoning_content": thought.group(1).strip("\n")} if thought else {})}

    def replies(self, replies: Sequence[Message], said: Message | None) -> list[Written]:
        """What was said to a turn, in the order given; tools' replies by the ids and names of their calls."""
        tools = [reply for reply in replies if reply.role == "tool"]
        numbers = {id(reply): number for number, reply in enumerate(tools)}
        named = dict(zip(map(id, tools), self.names(tools, said), strict=True))
        return [
            self._tool(reply, numbers[id(reply)], named[id(reply)]) if reply.role == "tool" else self._said(reply)
            for reply in replies
        ]

    def names(self, tools: Sequence[Message], said: Message | None) -> list[str]:
        """Name of the tool that each reply is from, where the turn it answers tells, and a template may write it."""
        known = {call.id: call.name for call in (said.calls if said else ()) if isinstance(call, ToolCall)}
        names = [known.get(str(reply.call_id), "") for reply in tools]
        return [name if _PLAIN_NAME.fullmatch(name) else "unknown" for name in names]

    def folded(self, replies: Sequence[Message]) -> Written:
        """All that was said to a turn as one user message."""
        before, after = self._around
        parts = [self._rendering.foreign(reply.content) for reply in replies]
        parts = [f"{before}{part}{after}" if reply.role == "tool" else part for part, reply in zip(parts, replies, strict=True)]
        return {"role": "user", "content": "\n".join(parts)}

    def history(self, messages: Sequence[Message], raw: Mapping[int, str], *, fold: bool, join: bool) -> list[Written]:
        """A whole conversation.

        Args:
            messages: from its first on.
            raw: place of a message -> the turn as it was said, for what reading it leaves out: white space, and broken calls.
            fold: put all that is said to a turn into one user message.
            join: put what is said between two turns, or behind the system message, into one user message where it is several
                messages that are not all of tools.

        Raises:
            ValueError: a message cannot be written.
        """
        written: list[Written] = []
        said: Message | None = None
        pending: list[Message] = []
        for index, message in enumerate(messages):
            if message.role != "assistant":
                pending.append(message)
                continue
            written += self._between(pending, said, fold=fold, join=join)
            written.append(self._remembered(message, raw.get(index)))
            said, pending = message, []
        return written + self._between(pending, said, fold=fold, join=join)

    def _remembered(self, message: Message, raw: str | None) -> Written:
        if raw is None:
            return self.turn(message)
        if not all(isinstance(call, ToolCall) for call in message.calls):
            return {"role": "assistant", "content": raw}
        if not message.calls and plain(raw).strip() == message.content:
            return self.turn(message, raw)
        return self.turn(message, slice_of(raw, message.content))

    def _call(self, call: ToolCall) -> ToolCall:
        return ToolCall(call.id, self._rendering.foreign(call.name), self.letters(call.arguments))

    def letters(self, value: Any) -> Any:
        """A JSON value whose texts, the keys too, are letters only."""
        if isinstance(value, dict):
            return {self._rendering.foreign(key): self.letters(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.letters(inner) for inner in value]
        return self._rendering.foreign(value) if isinstance(value, str) else value

    def _between(self, pending: Sequence[Message], said: Message | None, *, fold: bool, join: bool) -> list[Written]:
        if said is None:
            opening = [message for message in pending if message.role == "system"]
            asked = [message for message in pending if message.role != "system"]
            joined = join and len(asked) > 1
            return [*self.replies(opening, None), self.folded(asked)] if joined else self.replies(pending, None)
        mixed = join and len(pending) > 1 and any(reply.role != "tool" for reply in pending)
        return [self.folded(pending)] if pending and (fold or mixed) else self.replies(pending, said)

    def _said(self, message: Message) -> Written:
        said = self._rendering.authored if message.role == "system" else self._rendering.foreign
        return {"role": message.role, "content": said(message.content)}

    def _tool(self, reply: Message, number: int, name: str) -> dict[str, Any]:
        return {
            "role": "tool",
            "content": self._rendering.foreign(reply.content),
            "tool_call_id": wire_id(number),
            "name": name,
        }

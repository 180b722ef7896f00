"""Records as the messages that chat templates take: calls in the template's style, or as text where it has none."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stages.records import Message, ToolCall
from stages.text.calls import CallFormat
from stages.text.frame import CallStyle, wire_id
from stages.text.rendering import Written

_PLAIN_NAME = re.compile(r"[\w.-]{1,64}")
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_FENCES = {"gemma": ("```tool_output\n", "\n```")}
_TAGS = ("<tool_response>\n", "\n</tool_response>")
"""What stands around a tool's reply that goes into a user message; fences of formats that have their own come first."""


class Writer:
    """Messages for one template."""

    def __init__(self, style: CallStyle | None, call_format: CallFormat, foreign: Callable[[str], str]):
        """Keep how the template wants them.

        Args:
            style: how it takes calls; ``None`` where it writes none.
            call_format: how calls are written as text.
            foreign: see ``Rendering.foreign``.
        """
        self._style = style
        self._foreign = foreign
        self._format = call_format
        self._around = _FENCES.get(call_format.name, _TAGS)

    def plain(self, message: Message) -> str:
        """An assistant message as text, its calls in the call format.

        Raises:
            ValueError: a call is a bad one, or the format cannot hold it.
        """
        calls = [call for call in message.calls if isinstance(call, ToolCall)]
        if len(calls) != len(message.calls):
            raise ValueError(f"expected calls that can be written; got {message.calls}, in TemplateChat; remove the bad call")
        written = self._format.write(calls) if calls else ""
        return "\n".join(part for part in (message.content, written) if part)

    def turn(self, message: Message) -> Written:
        """An assistant message. Reasoning at its beginning goes where the template takes it apart.

        Raises:
            ValueError: as ``plain``.
        """
        plain = self.plain(message)
        thought = _THOUGHT.match(message.content) if self._style is not None and self._style.reasoning else None
        if self._style is None or not (message.calls or thought):
            return {"role": "assistant", "content": plain}
        content = message.content[thought.end() :] if thought else message.content
        calls = [(call.name, call.arguments) for call in message.calls if isinstance(call, ToolCall)]
        written = self._style.written(calls, content) if calls else {"role": "assistant", "content": content}
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
        parts = [self._foreign(reply.content) for reply in replies]
        parts = [f"{before}{part}{after}" if reply.role == "tool" else part for part, reply in zip(parts, replies, strict=True)]
        return {"role": "user", "content": "\n".join(parts)}

    def history(self, messages: Sequence[Message], raw: Mapping[int, str], *, fold: bool) -> list[Written]:
        """A whole conversation.

        Args:
            messages: from its first on.
            raw: place of a message -> the turn as it was said, for what reading it leaves out: white space, and broken calls.
            fold: put all that is said to a turn into one user message.

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
            written += self._between(pending, said, fold=fold)
            written.append(self._remembered(message, raw.get(index)))
            said, pending = message, []
        return written + self._between(pending, said, fold=fold)

    def _remembered(self, message: Message, raw: str | None) -> Written:
        if raw is not None and not all(isinstance(call, ToolCall) for call in message.calls):
            return {"role": "assistant", "content": raw}
        same = raw is not None and not message.calls and raw.strip() == message.content
        return self.turn(msgspec.structs.replace(message, content=raw) if same else message)

    def _between(self, pending: Sequence[Message], said: Message | None, *, fold: bool) -> list[Written]:
        if not pending:
            return []
        return [self.folded(pending)] if fold and said is not None else self.replies(pending, said)

    def _said(self, message: Message) -> Written:
        content = message.content if message.role == "system" else self._foreign(message.content)
        return {"role": message.role, "content": content}

    def _tool(self, reply: Message, number: int, name: str) -> dict[str, Any]:
        return {"role": "tool", "content": self._foreign(reply.content), "tool_call_id": wire_id(number), "name": name}

"""Demonstrations in JSONL files: ``{"id": ..., "messages": [{"role": ..., "content": ..., "calls": [...]}, ...]}`` a line.

A call in a file is ``{"name": ..., "arguments": {...}}``; its id follows from its place, and tool messages
answer the calls before them in order. How a conversation becomes tokens is for ``stages/text/demonstrations.py``.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from stages.records import Example, Message, ToolCall
from stages.tasks.rows import read_rows


class CallRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of an assistant message."""

    name: str
    arguments: dict[str, Any]


class MessageRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message; see ``Message``."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    calls: tuple[CallRow, ...] = ()


class ExampleRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file of demonstrations."""

    id: str
    messages: tuple[MessageRow, ...]


def read_examples(path: str | Path, *, min_rows: int = 1) -> tuple[Example, ...]:
    """Every demonstration of a file, in its order.

    Args:
        path: the file.
        min_rows: fewer are refused.

    Raises:
        RowError: rows are broken or too few; all of them are told.
        FileNotFoundError: there is no such file.
    """
    return read_rows(path, ExampleRow, to_example, lambda example: example.id, min_rows=min_rows)


def write_examples(path: str | Path, examples: Iterable[Example]) -> None:
    """Write demonstrations so that ``read_examples`` gives them back.

    Raises:
        ValueError: a call is a bad call, which is no demonstration.
    """
    lines = b"".join(msgspec.json.encode(to_row(example)) + b"\n" for example in examples)
    Path(path).write_bytes(lines)


def to_example(row: ExampleRow) -> Example:
    """A line as a demonstration.

    Raises:
        ValueError: it is no conversation that ends with an answer.
    """
    messages: list[Message] = []
    unanswered: list[str] = []
    for turn, message in enumerate(row.messages):
        calls = tuple(ToolCall(f"call-{turn}-{i}", call.name, call.arguments) for i, call in enumerate(message.calls))
        if calls and message.role != "assistant":
            raise ValueError(f"messages[{turn}].calls: expected calls in assistant messages only, got role {message.role!r}")
        if (message.role == "tool") != bool(unanswered):
            want = f"a tool message for {unanswered[0]}" if unanswered else "no tool message without a call"
            raise ValueError(f"messages[{turn}]: expected {want}, got role {message.role!r}")
        answers = unanswered.pop(0) if message.role == "tool" else None
        messages.append(Message(message.role, message.content, calls, answers))
        unanswered += [call.id for call in calls]
    if not messages or messages[0].role == "assistant" or messages[-1].role != "assistant" or unanswered:
        raise ValueError(f"messages: expected a prompt first and an answer last, got roles {[m.role for m in messages]}")
    return Example(row.id, tuple(messages))


def to_row(example: Example) -> ExampleRow:
    """A demonstration as a line.

    Raises:
        ValueError: a call is a bad call.
    """
    return ExampleRow(example.id, tuple(MessageRow(m.role, m.content, _calls(example, m)) for m in example.messages))


def _calls(example: Example, message: Message) -> tuple[CallRow, ...]:
    calls = [CallRow(call.name, call.arguments) for call in message.calls if isinstance(call, ToolCall)]
    if len(calls) != len(message.calls):
        raise ValueError(f"expected whole calls; got {message.calls}, in example {example.id!r}; leave it out")
    return tuple(calls)

"""Tool calls as JSON objects between tags, the Hermes format, read out of one turn of text. Pure; never raises.

Not incremental: it reads a turn that is over. Nothing is repaired. A call that is not exactly right becomes a ``BadCall`` with
one line for the model, because a guessed argument is worse than an answer that says what was wrong.

Source: the format of NousResearch/Hermes-Function-Calling, ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``. We
differ: arguments must be an object, given as such (no JSON inside a string, no null), and the closing tag is required.
"""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from stages.records import BadCall, ToolCall
from stages.text.chat import call_id

OPEN, CLOSE = "<tool_call>", "</tool_call>"
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
MAX_PROBLEM_CHARS = 200


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as text."""
    return f"{OPEN}\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n{CLOSE}"


def parse_calls(text: str, turn: int = 0) -> tuple[str, tuple[ToolCall | BadCall, ...]]:
    """Text of a turn without its calls, and the calls in order.

    A scan from left to right, in which a call's JSON is consumed whole: tags and braces inside its strings mean nothing.
    Reasoning runs from ``<think>`` to ``</think>``, or to the end where it is not closed; a ``</think>`` without an opening
    closes reasoning that began in the prompt, so whatever came before it was text. Reasoning stays in the content, unparsed.

    Args:
        text: the turn, without its stop token.
        turn: number of the turn, for the ids of the calls.

    Returns:
        The content, and the calls.
    """
    calls: list[tuple[str, dict[str, Any]] | str] = []
    kept: list[str] = []
    place = 0
    while (tag := _next_tag(text, place)) is not None:
        start, kind = tag
        if kind == THINK_CLOSE:
            place = start + len(THINK_CLOSE)
            calls, kept = [], [text[:place]]
            continue
        kept.append(text[place:start])
        if kind == THINK_OPEN:
            place = _after(text, THINK_CLOSE, start)
            kept.append(text[start:place])
        else:
            call, place = _read_call(text, start + len(OPEN))
            calls.append(call)
    kept.append(text[place:])
    return "".join(kept).strip(), tuple(_record(call, call_id(turn, index)) for index, call in enumerate(calls))


def _record(call: tuple[str, dict[str, Any]] | str, name_id: str) -> ToolCall | BadCall:
    return BadCall(name_id, call) if isinstance(call, str) else ToolCall(name_id, *call)


def _next_tag(text: str, place: int) -> tuple[int, str] | None:
    found = [(start, tag) for tag in (OPEN, THINK_OPEN, THINK_CLOSE) if (start := text.find(tag, place)) >= 0]
    return min(found, default=None)


def _after(text: str, tag: str, place: int) -> int:
    found = text.find(tag, place)
    return len(text) if found < 0 else found + len(tag)


def _read_call(text: str, place: int) -> tuple[tuple[str, dict[str, Any]] | str, int]:
    """The call whose JSON begins at ``place``, or what is wrong with it; and where the text goes on."""
    begin = place + len(text[place:]) - len(text[place:].lstrip())
    try:
        value, end = _DECODER.raw_decode(text, begin)
        # A lone surrogate and 1e999 parse, but no log could hold them later.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        return _problem(f"expected a JSON object after {OPEN}, got {type(error).__name__}: {error}"), _after(text, CLOSE, place)
    rest = text[end:].lstrip()
    if not rest.startswith(CLOSE):
        got = repr(rest[:20]) if rest else "the end of the turn"
        return _problem(f"expected {CLOSE} after the JSON object, got {got}"), _after(text, CLOSE, end)
    return _checked(value), _after(text, CLOSE, end)


def _checked(value: Any) -> tuple[str, dict[str, Any]] | str:
    if not isinstance(value, dict):
        return _problem(f'expected an object with "name" and "arguments", got {type(value).__name__}')
    name, arguments = value.get("name"), value.get("arguments")
    if not isinstance(name, str) or not name:
        return _problem(f'expected "name" to be the name of a tool, got {name!r}')
    if not isinstance(arguments, dict):
        return _problem(f'expected "arguments" to be an object ({{}} for none), got {arguments!r}')
    return name, arguments


def _problem(text: str) -> str:
    line = " ".join(text.split()).encode(errors="replace").decode()
    return line if len(line) <= MAX_PROBLEM_CHARS else line[: MAX_PROBLEM_CHARS - 3] + "..."


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)

"""Calls whose parameters are tags of their own, the format of Qwen3-Coder.

``<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>``. Values are plain text: what they stand
for is in the tool's schema (``typed``). Source: the chat template and the tool parser of Qwen3-Coder. We differ: the closing
tag of each part is required, and a value that does not fit its type is left as text, for the tool to refuse.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.records import ToolCall
from stages.text.formats.found import Found, closed_by, decode_json, problem, shown, write_json
from stages.text.formats.growing import GrowingText, Marks, Reading
from stages.text.formats.scan import Calls, Draft, scan

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END, PARAMETER, PARAMETER_END = "<function=", "</function>", "<parameter=", "</parameter>"
_CLOSING, _ANGLE, _VALUE = Marks([CLOSE]), Marks([">", "\n"]), Marks([PARAMETER_END])


class XmlFormat:
    """See the file."""

    name = "xml"
    untyped = True

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``."""
        return "\n".join(f"{OPEN}\n{FUNCTION}{c.name}>\n{_parameters(c.arguments)}{FUNCTION_END}\n{CLOSE}" for c in calls)

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``."""
        return scan(source, draft, {OPEN: _call}, None, thinking=thinking)


def typed(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Texts as the values that the schema of a tool means by them.

    Args:
        arguments: parameter -> text.
        schema: JSON schema of the tool's arguments. A parameter it does not know, or may be text, stays text.
    """
    known = schema.get("properties", {})
    return {key: _valued(value, known.get(key, {})) for key, value in arguments.items()}


def _valued(value: Any, schema: Any) -> Any:
    options = schema.get("anyOf", [schema]) if isinstance(schema, dict) else []
    types = [kind for option in options for kind in _types(option)]
    if not isinstance(value, str) or not types or "string" in types:
        return value
    try:
        return decode_json({"True": "true", "False": "false", "None": "null"}.get(value.strip(), value))
    except (ValueError, RecursionError):
        return value


def _types(option: Any) -> list[Any]:
    found = option.get("type") if isinstance(option, dict) else None
    return list(found) if isinstance(found, list) else [] if found is None else [found]


def _parameters(arguments: Mapping[str, Any]) -> str:
    lines = (
        f"{PARAMETER}{key}>\n{value if isinstance(value, str) else write_json({'': value})[5:-1]}\n{PARAMETER_END}\n"
        for key, value in arguments.items()
    )
    return "".join(lines)


def _call(source: GrowingText, place: int) -> Reading[Calls]:
    found, end = yield from _function(source, place)
    if isinstance(found, str):
        return [found], (yield from source.after(_CLOSING, end))
    unclosed, end = yield from closed_by(source, end, _CLOSING, CLOSE)
    return [unclosed or found], end


def _function(source: GrowingText, place: int) -> Reading[tuple[Found, int]]:
    name, place = yield from _opened(source, place, FUNCTION)
    if name is None:
        return problem(f"expected {FUNCTION}NAME> after {OPEN}, got {shown((yield from source.peek(place, 40)))}"), place
    arguments: dict[str, Any] = {}
    while True:
        key, at = yield from _opened(source, place, PARAMETER)
        if key is None:
            break
        value_end = yield from source.find(_VALUE, at)
        if value_end is None:
            return problem(f"expected {PARAMETER_END} after parameter {shown(key)}, got the end of the turn"), at
        place = value_end[0] + len(PARAMETER_END)
        if key in arguments:
            return problem(f"expected each parameter once, got {shown(key)} twice"), place
        arguments[key] = source.text[at : value_end[0]].removeprefix("\n").removesuffix("\n")
    at = yield from source.past_space(place)
    got = yield from source.peek(at, 40)
    if not got.startswith(FUNCTION_END):
        return problem(f"expected {PARAMETER}KEY> or {FUNCTION_END}, got {shown(got) if got else 'the end of the turn'}"), at
    return (name, arguments), at + len(FUNCTION_END)


def _opened(source: GrowingText, place: int, mark: str) -> Reading[tuple[str | None, int]]:
    """The name in a tag ``<mark=NAME>`` that follows, white space aside, and the place behind it."""
    at = yield from source.past_space(place)
    if (yield from source.peek(at, len(mark))) != mark:
        return None, at
    found = yield from source.find(_ANGLE, at)
    name = "" if found is None or found[1] != ">" else source.text[at + len(mark) : found[0]].strip()
    return (name, found[0] + 1) if name and found is not None else (None, at)

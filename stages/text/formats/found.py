"""What a reader makes of one call: name and arguments exactly as written, or one bounded line on what is wrong."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from stages.text.formats.growing import GrowingText, Marks, Reading

Found = tuple[str, dict[str, Any]] | str
"""Name and arguments of a call, or what is wrong with it."""
MAX_PROBLEM_CHARS = 200
_SHOWN = 40


def problem(text: str) -> str:
    """One line of at most ``MAX_PROBLEM_CHARS`` that any log can hold."""
    line = " ".join(text[: 2 * MAX_PROBLEM_CHARS].split()).encode(errors="replace").decode()
    return line if len(line) <= MAX_PROBLEM_CHARS else line[: MAX_PROBLEM_CHARS - 3] + "..."


def shown(value: Any) -> str:
    """The beginning of a value, for a problem."""
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN + 2 else f"{text[:_SHOWN]}..."


def read_json(source: GrowingText, place: int, where: str) -> Reading[tuple[Any, str | None, int | None]]:
    """The JSON value behind white space at a place.

    Returns:
        The value; what is wrong, or ``None``; and where it ends, or ``None`` where no value is whole.
    """
    begin = yield from source.past_space(place)
    end = yield from source.json_end(begin)
    if end is None:
        got = yield from source.peek(begin, _SHOWN)
        return None, problem(f"expected a whole JSON value {where}, got {shown(got) if got else 'the end of the turn'}"), None
    try:
        return decode_json(source.text[begin:end]), None, end
    except (ValueError, RecursionError) as error:
        return None, problem(f"expected JSON {where}, got {type(error).__name__}: {str(error)[:_LONG]}"), end


def decode_json(text: str) -> Any:
    """A JSON value that can be written again.

    Raises:
        ValueError: it is no JSON; a key occurs twice; or it holds what no log could: NaN, a lone surrogate, 1e999.
        RecursionError: it is too deep.
    """
    value = _DECODER.decode(text)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


def call_of(value: Any, key: str = "arguments", *more: str) -> Found:
    """A JSON value as a call.

    Args:
        value: an object with ``name`` and arguments.
        key: the arguments' key.
        more: other keys they may have instead.
    """
    if not isinstance(value, dict):
        return problem(f'expected an object with "name" and "{key}", got {type(value).__name__}')
    keys = [k for k in (key, *more) if k in value]
    if len(keys) > 1:
        return problem(f'expected one of "name" and "{key}", got {keys}')
    return named(value.get("name"), value.get(keys[0]) if keys else None, keys[0] if keys else key)


def named(name: Any, arguments: Any, key: str = "arguments") -> Found:
    """Name and arguments, checked."""
    if not isinstance(name, str) or not name.strip():
        return problem(f'expected "name" to be the name of a tool, got {shown(name)}')
    if not isinstance(arguments, dict):
        return problem(f'expected "{key}" to be an object ({{}} for none), got {shown(arguments)}')
    return name, arguments


def closed_by(source: GrowingText, end: int, marks: Marks, mark: str) -> Reading[tuple[str | None, int]]:
    """Whether a mark follows, white space aside: what is wrong if not, and the place behind it or behind the next one."""
    at = yield from source.past_space(end)
    if (yield from source.peek(at, len(mark))) == mark:
        return None, at + len(mark)
    got = yield from source.peek(at, _SHOWN)
    wrong = problem(f"expected {mark} after the call, got {shown(got) if got else 'the end of the turn'}")
    return wrong, (yield from source.after(marks, end))


def write_json(value: Mapping[str, Any]) -> str:
    """An object on one line, unicode as it is."""
    return json.dumps(value, ensure_ascii=False)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


_LONG = 120
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)

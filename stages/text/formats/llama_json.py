"""A JSON object that is the whole answer, the format of Llama 3.1 to 3.3, with ``<|python_tag|>`` in front or without.

Source: the prompt format pages of Llama 3.1 and 3.3: ``{"name": ..., "parameters": {...}}``, several apart by ``;``. Behind the
tag also ``NAME.call(KEY="VALUE")``, as for the built-in tools. Any other JSON is text: an object without a name, and where the
tools are known, one that names none of them and has no arguments.
"""

import re
from collections.abc import Collection, Sequence
from functools import partial

from stages.records import ToolCall
from stages.text.formats.found import Found, call_of, problem, read_json, shown, write_json
from stages.text.formats.growing import GrowingText, Marks, Reading
from stages.text.formats.python_calls import read_expression
from stages.text.formats.scan import THINK_CLOSE, Calls, Draft, scan

TAG = "<|python_tag|>"
_LIKE_A_CALL = re.compile(r'\{\s*"(name|function|parameters)"\s*:|\{\s*"type"\s*:\s*"function"')
_OUTSIDE = Marks([TAG, THINK_CLOSE])
_ARGUMENTS = {"parameters", "arguments", "function"}
_LOOK = 64
"""Characters in which an object that is a call shows it."""


class LlamaJsonFormat:
    """See the file."""

    name = "llama_json"
    untyped = False

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``."""
        return "; ".join(write_json({"name": c.name, "parameters": c.arguments}) for c in calls)

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``."""
        return scan(source, draft, {TAG: _tagged}, partial(_untagged, draft.tools), thinking=thinking)


def _untagged(tools: Collection[str], source: GrowingText, place: int) -> Reading[Calls | None]:
    begin = yield from source.past_space(place)
    if _LIKE_A_CALL.match((yield from source.peek(begin, _LOOK))) is None:
        return None
    if tools and (yield from _is_answer(tools, source, begin)):
        return None
    return (yield from _objects(source, begin))


def _is_answer(tools: Collection[str], source: GrowingText, place: int) -> Reading[bool]:
    """Whether an object has a name as people or things have one."""
    value, wrong, _ = yield from read_json(source, place, "as the answer")
    return wrong is None and isinstance(value, dict) and value.get("name") not in tools and not _ARGUMENTS & value.keys()


def _tagged(source: GrowingText, place: int) -> Reading[Calls]:
    begin = yield from source.past_space(place)
    if (yield from source.peek(begin, 1)) == "{":
        return (yield from _objects(source, begin))
    end = yield from source.rest()
    return [_built_in(source.text[begin:end])], end


def _built_in(text: str) -> Found:
    found = read_expression(text)
    if len(found) != 1 or isinstance(found[0], str) or not found[0][0].endswith(".call"):
        return problem(f"expected a JSON object or NAME.call(...) after {TAG}, got {shown(text)}")
    return found[0][0].removesuffix(".call"), found[0][1]


def _objects(source: GrowingText, place: int) -> Reading[Calls]:
    """Objects apart by ``;``. One that has no end, or words after it, takes the rest with it: nothing can be told apart."""
    calls: list[Found] = []
    while True:
        value, wrong, end = yield from read_json(source, place, "as the call")
        calls.append(wrong or call_of(value, "parameters", "arguments"))
        if end is None:
            return calls, (yield from _next(source, place))
        place = yield from source.past_space(end)
        if (yield from source.peek(place, 1)) == ";":
            place = yield from source.past_space(place + 1)
        ahead = yield from source.peek(place, _LOOK)
        if not ahead or ahead.startswith((TAG, THINK_CLOSE)):
            return calls, place
        if not ahead.startswith("{"):
            calls[-1] = problem(f"expected ';' or the end after the call, got {shown(ahead[:20])}")
            return calls, (yield from _next(source, place))


def _next(source: GrowingText, place: int) -> Reading[int]:
    """The next mark that means something outside a call, which is not consumed, or the end."""
    found = yield from source.find(_OUTSIDE, place)
    return len(source.text) if found is None else found[0]

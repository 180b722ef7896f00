"""Calls behind ``[TOOL_CALLS]``, in both forms of Mistral's models.

Source: mistral-common, the tokenizers of version 3 (an array of objects with ``name``, ``arguments`` and an ``id``) and of
version 11 and up (``[TOOL_CALLS]NAME[ARGS]{...}``, the mark again for each call, with ``[CALL_ID]ID`` before the arguments or
without). The id the model gives a call is not its id here: ours are the same in every run.
"""

from collections.abc import Sequence

from stages.records import ToolCall
from stages.text.formats.found import call_of, named, problem, read_json, shown, write_json
from stages.text.formats.growing import GrowingText, Marks, Reading
from stages.text.formats.scan import Calls, Draft, scan

OPEN, ARGUMENTS, ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_NEXT = Marks([OPEN, ARGUMENTS])
_OPENING = Marks([OPEN])


class MistralFormat:
    """See the file."""

    name = "mistral"
    untyped = False

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``."""
        return OPEN + ", ".join(write_json({"name": c.name, "arguments": c.arguments}) for c in calls).join("[]")

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``."""
        return scan(source, draft, {OPEN: _calls}, None, thinking=thinking)


def _calls(source: GrowingText, place: int) -> Reading[Calls]:
    begin = yield from source.past_space(place)
    ahead = yield from source.peek(begin, len(OPEN))
    if ahead[:1] in ("[", "{") and ahead != OPEN:
        return (yield from _array(source, begin))
    return (yield from _named(source, begin))


def _array(source: GrowingText, place: int) -> Reading[Calls]:
    value, wrong, end = yield from read_json(source, place, f"after {OPEN}")
    if end is None or wrong is not None:
        # Up to the next opening, which is not consumed.
        found = yield from source.find(_OPENING, place if end is None else end)
        return [wrong or ""], len(source.text) if found is None else found[0]
    if not isinstance(value, list) or not value:
        return [problem(f"expected an array of calls after {OPEN}, got {shown(value)}")], end
    return [call_of(item) for item in value], end


def _named(source: GrowingText, place: int) -> Reading[Calls]:
    found = yield from source.find(_NEXT, place)
    if found is None or found[1] == OPEN:
        got = yield from source.peek(place, 40)
        stop = len(source.text) if found is None else found[0]
        return [problem(f"expected {OPEN}NAME{ARGUMENTS}{{...}} or an array, got {shown(got)}")], stop
    name = source.text[place : found[0]].split(ID)[0].strip()
    value, wrong, end = yield from read_json(source, found[0] + len(ARGUMENTS), f"after {ARGUMENTS}")
    if end is None:
        ahead = yield from source.find(_OPENING, found[0])
        return [wrong or ""], len(source.text) if ahead is None else ahead[0]
    return [wrong or named(name, value)], end

"""JSON objects between tags, the format of Hermes and of most Qwen models.

Source: NousResearch/Hermes-Function-Calling, ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``. We differ: arguments
must be an object, given as such (no JSON inside a string, no null), and the closing tag is required.
"""

from collections.abc import Sequence

from stages.records import ToolCall
from stages.text.formats.found import call_of, closed_by, read_json, write_json
from stages.text.formats.growing import GrowingText, Marks, Reading
from stages.text.formats.scan import Calls, Draft, scan

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CLOSING = Marks([CLOSE])


class HermesFormat:
    """See the file."""

    name = "hermes"
    untyped = False

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``."""
        return "\n".join(f"{OPEN}\n{write_json({'name': c.name, 'arguments': c.arguments})}\n{CLOSE}" for c in calls)

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``."""
        return scan(source, draft, {OPEN: _call}, None, thinking=thinking)


def _call(source: GrowingText, place: int) -> Reading[Calls]:
    value, wrong, end = yield from read_json(source, place, f"after {OPEN}")
    if end is None or wrong is not None:
        return [wrong or ""], (yield from source.after(_CLOSING, place if end is None else end))
    open_end, place = yield from closed_by(source, end, _CLOSING, CLOSE)
    return [open_end or call_of(value)], place

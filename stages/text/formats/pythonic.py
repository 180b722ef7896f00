"""A Python list of calls that is the whole answer, the format of Llama 3.2 and 4: ``[get(a=1), put(b="x")]``.

Source: the prompt format pages of Llama 3.2 and 4. It may stand between ``<|python_start|>`` and ``<|python_end|>``.
"""

import re
from collections.abc import Sequence

from stages.records import ToolCall
from stages.text.formats.found import problem
from stages.text.formats.growing import GrowingText, Marks, Reading
from stages.text.formats.python_calls import read_expression, write_expression
from stages.text.formats.scan import Calls, Draft, scan

OPEN, CLOSE = "<|python_start|>", "<|python_end|>"
_CLOSING = Marks([CLOSE])
_LIKE_CALLS = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")
_LOOK = 80


class PythonicFormat:
    """See the file."""

    name = "pythonic"
    untyped = False

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``."""
        return f"[{', '.join(write_expression(c.name, c.arguments) for c in calls)}]"

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``."""
        return scan(source, draft, {OPEN: _marked}, _unmarked, thinking=thinking)


def _unmarked(source: GrowingText, place: int) -> Reading[Calls | None]:
    begin = yield from source.past_space(place)
    if _LIKE_CALLS.match((yield from source.peek(begin, _LOOK))) is None:
        return None
    end = yield from source.after(_CLOSING, begin)
    return read_expression(source.text[begin:end]), end


def _marked(source: GrowingText, place: int) -> Reading[Calls]:
    end = yield from source.after(_CLOSING, place)
    text = source.text[place:end]
    if not text.endswith(CLOSE):
        return [problem(f"expected {CLOSE} after the calls, got the end of the turn")], end
    return read_expression(text.removesuffix(CLOSE)), end

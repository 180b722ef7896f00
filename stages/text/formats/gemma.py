"""Python calls in a fenced block ``tool_code``, a line each, the format of Gemma 2 and 3.

Source: the function calling page of Gemma 3. A call may stand inside ``print(...)`` and behind ``default_api.``, as in Gemini's
own code; both are left out. The fence closes at the beginning of a line: no string of one line can hold it.
"""

import re
from collections.abc import Sequence

from stages.records import ToolCall
from stages.text.formats.found import Found, problem
from stages.text.formats.growing import GrowingText, Marks, Reading
from stages.text.formats.python_calls import read_expression, write_expression
from stages.text.formats.scan import Calls, Draft, scan

OPEN, CLOSE = "```tool_code\n", "\n```"
_CLOSING = Marks([CLOSE])
_PRINTED = re.compile(r"print\((.*)\)", re.DOTALL)


class GemmaFormat:
    """See the file."""

    name = "gemma"
    untyped = False

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``."""
        return OPEN + "\n".join(write_expression(c.name, c.arguments) for c in calls) + CLOSE

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``."""
        return scan(source, draft, {OPEN: _block}, None, thinking=thinking)


def _block(source: GrowingText, place: int) -> Reading[Calls]:
    # A block without a line begins where its fence ends, so the line break before the fence is the opening's own.
    end = yield from source.after(_CLOSING, place - 1)
    text = source.text[place - 1 : end]
    if not text.endswith(CLOSE):
        return [problem("expected ``` on a line of its own after the calls, got the end of the turn")], end
    body = text.removesuffix(CLOSE).strip()
    if not body:
        return [problem("expected a call in the block, got none")], end
    whole = read_expression(_bare(body))
    if any(not isinstance(found, str) for found in whole):
        return [_unprefixed(found) for found in whole], end
    return [_unprefixed(found) for line in body.splitlines() if line.strip() for found in read_expression(_bare(line))], end


def _bare(text: str) -> str:
    printed = _PRINTED.fullmatch(text.strip())
    return text if printed is None else printed.group(1)


def _unprefixed(found: Found) -> Found:
    return found if isinstance(found, str) else (found[0].removeprefix("default_api."), found[1])

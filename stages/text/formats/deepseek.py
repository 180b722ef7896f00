"""Calls between DeepSeek's own marks, in the forms of V3 and R1 (a fenced block) and of V3.1 (the bare object).

Source: the chat templates of DeepSeek-V3, DeepSeek-R1 and DeepSeek-V3.1.
"""

from collections.abc import Sequence

from stages.records import ToolCall
from stages.text.formats.found import Found, closed_by, named, problem, read_json, shown, write_json
from stages.text.formats.growing import GrowingText, Marks, Reading
from stages.text.formats.scan import Calls, Draft, scan

ALL_OPEN, ALL_CLOSE = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
OPEN, SEPARATOR, CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
FENCE = "```json"
_CLOSING = Marks([CLOSE])
_SEPARATING = Marks([SEPARATOR, OPEN, CLOSE])
_LINE = Marks(["\n", "{", CLOSE, OPEN])


class DeepSeekFormat:
    """See the file. Written in the form of V3 and R1."""

    name = "deepseek"
    untyped = False

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``."""
        written = (f"{OPEN}function{SEPARATOR}{c.name}\n{FENCE}\n{write_json(c.arguments)}\n```{CLOSE}" for c in calls)
        return ALL_OPEN + "\n".join(written) + ALL_CLOSE

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``."""
        return scan(source, draft, {ALL_OPEN: _nothing, OPEN: _call, ALL_CLOSE: _nothing}, None, thinking=thinking)


def _nothing(source: GrowingText, place: int) -> Reading[Calls]:
    """The marks around all calls say nothing that the calls do not; the white space behind them goes with them."""
    return [], (yield from source.past_space(place))


def _call(source: GrowingText, place: int) -> Reading[Calls]:
    found = yield from source.find(_SEPARATING, place)
    if found is None or found[1] != SEPARATOR:
        wrong = problem(f"expected {SEPARATOR} after {OPEN}, got {shown((yield from source.peek(place, 40)))}")
        stop = len(source.text) if found is None else found[0] + (len(CLOSE) if found[1] == CLOSE else 0)
        return [wrong], (yield from source.past_space(stop))
    first, place = source.text[place : found[0]].strip(), found[0] + len(SEPARATOR)
    after = yield from source.past_space(place)
    bare = (yield from source.peek(after, 1)) == "{"
    name, body = (first, after) if bare else (yield from _fenced(source, place))
    value, wrong, end = yield from read_json(source, body, f"as the arguments of {shown(name)}")
    if end is None or wrong is not None:
        stop = yield from source.after(_CLOSING, body if end is None else end)
        return [wrong or ""], (yield from source.past_space(stop))
    fence = None
    if not bare:
        fence, end = yield from closed_by(source, end, Marks(["```", CLOSE]), "```")
    unclosed, stop = (None, end) if fence else (yield from closed_by(source, end, _CLOSING, CLOSE))
    call: Found = fence or unclosed or named(name, value)
    return [call], (yield from source.past_space(stop))


def _fenced(source: GrowingText, place: int) -> Reading[tuple[str, int]]:
    """The name on the rest of the line, and where the object begins behind the fence."""
    found = yield from source.find(_LINE, place)
    stop = len(source.text) if found is None else found[0]
    begin = yield from source.past_space(stop)
    if (yield from source.peek(begin, len(FENCE))) == FENCE:
        begin += len(FENCE)
    return source.text[place:stop].strip(), begin

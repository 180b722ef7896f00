"""The walk through a turn that all formats share: text is kept, reasoning is kept unread, marks open calls. Pure."""

from collections.abc import Callable, Collection, Mapping

from stages.text.formats.found import Found
from stages.text.formats.growing import GrowingText, Marks, Reading

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
_END_OF_REASONING = Marks([THINK_CLOSE])
Calls = tuple[list[Found], int]
"""Calls, and where the text goes on behind them."""
ReadCalls = Callable[[GrowingText, int], Reading[Calls]]
"""Reads calls behind their mark."""
ReadStart = Callable[[GrowingText, int], Reading[Calls | None]]
"""Reads calls that begin an answer without a mark; ``None`` where the answer begins otherwise."""


class Draft:
    """What has been read of a turn: spans of its text that are content, texts put in between, and calls."""

    def __init__(self, tools: Collection[str] = ()) -> None:
        """Begin.

        Args:
            tools: names of those the conversation has, for formats whose calls look like other text; empty where nobody knows.
        """
        self.tools = tools
        self.kept: list[tuple[int, int] | str] = []
        self.calls: list[Found] = []

    def only_text(self, stop: int) -> None:
        """Whatever was read up to ``stop`` was text."""
        self.kept, self.calls = [(0, stop)], []

    def content(self, text: str) -> str:
        """The content, white space at its ends aside."""
        return "".join(part if isinstance(part, str) else text[part[0] : part[1]] for part in self.kept).strip()


def scan(
    source: GrowingText,
    draft: Draft,
    openings: Mapping[str, ReadCalls],
    at_start: ReadStart | None,
    *,
    thinking: bool,
) -> Reading[None]:
    """Walk from left to right; what a call consumes means nothing else.

    Reasoning runs from ``<think>`` to ``</think>``, or to the end where it is not closed. A ``</think>`` without an opening
    closes reasoning that began in the prompt, so whatever came before it was text.

    Args:
        source: the turn.
        draft: takes what is found.
        openings: a mark that opens calls -> their reader.
        at_start: reads calls that have no mark, at the beginning of the answer; ``None`` where there are none such.
        thinking: the prompt ended inside reasoning.
    """
    marks = Marks([*openings, THINK_OPEN, THINK_CLOSE])
    place, begins = 0, True
    if thinking:
        place = yield from source.after(_END_OF_REASONING, 0)
        draft.only_text(place)
    while True:
        if begins and at_start is not None and (calls := (yield from at_start(source, place))) is not None:
            draft.calls += calls[0]
            place = calls[1]
        found = yield from source.find(marks, place)
        if found is None:
            draft.kept.append((place, len(source.text)))
            return
        start, mark = found
        begins = mark in (THINK_OPEN, THINK_CLOSE)
        if mark == THINK_CLOSE:
            place = start + len(mark)
            draft.only_text(place)
            continue
        draft.kept.append((place, start))
        if mark == THINK_OPEN:
            place = yield from source.after(_END_OF_REASONING, start)
            draft.kept.append((start, place))
        else:
            more, place = yield from openings[mark](source, start + len(mark))
            draft.calls += more

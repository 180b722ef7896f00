"""A call format that writes only what it reads back: a value that would end its own call is refused, not written. Pure."""

import json
from collections.abc import Sequence
from typing import Any

from stages.records import ToolCall
from stages.text.formats.call_format import CallFormat
from stages.text.formats.found import Found, shown
from stages.text.formats.growing import GrowingText, Reading
from stages.text.formats.scan import Draft


class Exact:
    """A ``CallFormat`` around one that may write what it does not read."""

    def __init__(self, inner: CallFormat):
        """Keep it."""
        self._inner = inner
        self.name = inner.name
        self.untyped = inner.untyped

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``."""
        text = self._inner.write(calls)
        content, found = self._read_whole(text)
        meant = [(call.name, self._as_read(call.arguments)) for call in calls]
        if content or [_strict(each) for each in found] != [_strict(each) for each in meant]:
            raise ValueError(
                f"expected calls that are read back as they are written; got {shown(str(content or found))} from "
                f"{shown(text)}, in the {self.name} format; use another call format, or other arguments"
            )
        return text

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``."""
        return self._inner.read(source, draft, thinking=thinking)

    def _read_whole(self, text: str) -> tuple[str, list[Found]]:
        source, draft = GrowingText(), Draft()
        source.add(text)
        source.close()
        for _ in self._inner.read(source, draft, thinking=False):
            pass
        return draft.content(text), draft.calls

    def _as_read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self.untyped:
            return arguments
        return {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in arguments.items()
        }


def _strict(found: Found) -> str:
    """A call as text that tells 1 from True, and from 1.0."""
    return json.dumps(found, sort_keys=True)

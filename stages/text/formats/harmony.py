"""Messages on channels, the format of gpt-oss: reasoning, calls and the answer are messages of their own within one turn.

Source: the harmony response format of OpenAI's gpt-oss. A turn goes on behind ``<|start|>assistant``; a message whose header
names a recipient is a call, its text the arguments. Reasoning (channel ``analysis``) comes out between ``<think>`` and
``</think>``, as in the other formats.
"""

import re
from collections.abc import Sequence

from stages.records import ToolCall
from stages.text.formats.found import named, problem, read_json, shown, write_json
from stages.text.formats.growing import GrowingText, Marks, Reading
from stages.text.formats.scan import THINK_CLOSE, THINK_OPEN, Draft

START, MESSAGE, CHANNEL = "<|start|>", "<|message|>", "<|channel|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
_HEADER = Marks([MESSAGE, START])
_ENDING = Marks([END, CALL, RETURN, START])
_RECIPIENT = re.compile(r"\bto=(\S+?)(?=\s|<\||$)")
_NAMED = re.compile(r"<\|channel\|>\s*(\w+)")


class HarmonyFormat:
    """See the file."""

    name = "harmony"
    untyped = False

    def write(self, calls: Sequence[ToolCall]) -> str:
        """See ``CallFormat``. One turn of this format holds one call.

        Raises:
            ValueError: several calls.
        """
        if len(calls) > 1:
            raise ValueError(f"expected one call; got {len(calls)}, in a turn of the harmony format; write a turn for each")
        return "".join(
            f"{CHANNEL}commentary to=functions.{c.name} <|constrain|>json{MESSAGE}{write_json(c.arguments)}" for c in calls
        )

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """See ``CallFormat``. A turn always begins a message, so whether the prompt ended in reasoning says nothing here."""
        place = 0
        while True:
            found = yield from source.find(_HEADER, place)
            if found is None:
                rest = source.text[place:]
                if _RECIPIENT.search(rest) and CHANNEL in rest:
                    draft.calls.append(problem(f"expected {MESSAGE} after the header, got {shown(rest)}"))
                else:
                    draft.kept.append((place, len(source.text)))
                return
            start, mark = found
            if mark == START:
                draft.kept.append((place, start))
                place = start + len(START)
                continue
            header = source.text[place:start]
            place = yield from _message(source, draft, header, start + len(MESSAGE))


def _message(source: GrowingText, draft: Draft, header: str, place: int) -> Reading[int]:
    recipient, channel = _RECIPIENT.search(header), _NAMED.search(header)
    if recipient is not None:
        return (yield from _call(source, draft, recipient.group(1), place))
    found = yield from source.find(_ENDING, place)
    stop, mark = (len(source.text), "") if found is None else found
    if channel is not None and channel.group(1) == "analysis":
        draft.kept += [THINK_OPEN, (place, stop), THINK_CLOSE if mark else ""]
    else:
        draft.kept.append((place, stop))
    return stop if mark == START else stop + len(mark)


def _call(source: GrowingText, draft: Draft, recipient: str, place: int) -> Reading[int]:
    value, wrong, end = yield from read_json(source, place, f"as the arguments of {shown(recipient)}")
    at = (yield from source.past_space(place)) if end is None else (yield from source.past_space(end))
    got = yield from source.peek(at, len(RETURN))
    if wrong is None and got and not got.startswith((END, CALL, RETURN, START)):
        wrong = problem(f"expected {CALL} after the arguments, got {shown(got)}")
    draft.calls.append(wrong or named(recipient.removeprefix("functions."), value))
    found = yield from source.find(_ENDING, place if end is None else end)
    return len(source.text) if found is None else found[0] + (0 if found[1] == START else len(found[1]))

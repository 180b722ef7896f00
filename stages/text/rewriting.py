"""What a chat template does to history that appending does not: probed by rendering. Tells; changes nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.text.frame import ANSWERED, ASKED, ASKED_AGAIN, SAID, THOUGHT, CallStyle, Frame, wire_id
from stages.text.rendering import Rendering, TemplateRefusal, Written

_ROUNDS = 24
"""Turns of the longest conversation that is probed."""
_LONG = 400
"""Words of the longest turn that is probed."""
_SAID: Written = {"role": "assistant", "content": SAID}
_SYSTEM: Written = {"role": "system", "content": "juliett"}
_REASONED: Written = {"role": "assistant", "content": f"<think>\n{THOUGHT}\n</think>\n\n{SAID}"}


def find_rewrites(
    rendering: Rendering, frame: Frame, style: CallStyle | None, tool: Mapping[str, Any] | None, *, verbatim: bool
) -> tuple[str, ...]:
    """Names of what the template rewrites; none where a conversation only grows under it.

    Args:
        rendering: the template.
        frame: what it puts between turns.
        style: how it takes calls; ``None`` where it writes none.
        tool: a function to show; ``None`` where it shows none.
        verbatim: it writes calls to the letter as the format does.

    Returns:
        Any of these:

        - ``reasoning``: of earlier turns is dropped once a user speaks.
        - ``beside calls``: what is said or thought beside calls is dropped once a tool answers.
        - ``replies``: of tools are written otherwise once something follows.
        - ``white space``: at the ends of a turn is dropped.
        - ``calls``: are serialised in the template's own way.
        - ``system``: the system message is shown elsewhere as the conversation goes on.
        - ``tools``: are shown elsewhere as the conversation goes on.
        - ``last turn``: is written otherwise than once something follows.
        - ``prompt``: what asked for a turn is not in front of it later.
        - ``turns``: are written otherwise in a conversation of many turns, or of long ones.
    """
    named: dict[str, Callable[[], bool]] = {
        "reasoning": lambda: THOUGHT not in rendering.text([ASKED, _REASONED, ASKED_AGAIN], prompt=True),
        "beside calls": lambda: style is not None and THOUGHT not in _answered(rendering, style),
        "replies": lambda: style is not None and not _grows(rendering, [*_called(style), _SAID], [], drop=1, prompt=False),
        "white space": lambda: f"  {SAID} \n" not in rendering.text([ASKED, _spaced(), ASKED_AGAIN], prompt=True),
        "calls": lambda: not verbatim,
        "system": lambda: (
            _grows(rendering, [ASKED, _SAID, ASKED_AGAIN], [], drop=2)
            and not _grows(rendering, [_SYSTEM, ASKED, _SAID, ASKED_AGAIN], [], drop=2)
        ),
        "tools": lambda: (
            tool is not None
            and _grows(rendering, [ASKED, _SAID, ASKED_AGAIN], [], drop=2)
            and not _grows(rendering, [ASKED, _SAID, ASKED_AGAIN], [tool], drop=2)
        ),
        "last turn": lambda: not _grows(rendering, [ASKED, _SAID, ASKED_AGAIN], [], drop=1, prompt=False),
        "prompt": lambda: not _grows(rendering, [ASKED, _SAID], [], drop=1),
    }
    told = tuple(name for name, probe in named.items() if _holds(probe))
    # Where already a first turn is written otherwise for a reason that is told, more turns say nothing new.
    silent = told and _holds(lambda: not _appends(rendering, frame, rounds=1, repeats=1))
    return told if silent or not _holds(lambda: _changes(rendering, frame)) else (*told, "turns")


def _changes(rendering: Rendering, frame: Frame) -> bool:
    many = _appends(rendering, frame, rounds=_ROUNDS, repeats=1)
    return not (many and _appends(rendering, frame, rounds=2, repeats=_LONG))


def _spaced() -> Written:
    return {"role": "assistant", "content": f"  {SAID} \n"}


def _called(style: CallStyle, content: str = "") -> list[Written]:
    reply = {"role": "tool", "content": ANSWERED, "tool_call_id": wire_id(0), "name": "golf"}
    return [ASKED, style.written([("golf", {"hotel": "india"})], content), reply]


def _answered(rendering: Rendering, style: CallStyle) -> str:
    asked, called, reply = _called(style, "" if style.reasoning else str(_REASONED["content"]))
    thought = {"reasoning_content": THOUGHT} if style.reasoning else {}
    return rendering.text([asked, {**called, **thought}, reply], prompt=True)


def _grows(rendering: Rendering, messages: Sequence[Written], tools: Sequence[Any], *, drop: int, prompt: bool = True) -> bool:
    """Whether a conversation without its last messages is how the whole one begins, white space at the seam aside."""
    before = rendering.text(messages[:-drop], tools, prompt=prompt).rstrip()
    return rendering.text(messages, tools, prompt=False).startswith(before)


def _appends(rendering: Rendering, frame: Frame, *, rounds: int, repeats: int) -> bool:
    """Whether each of so many turns is followed by what follows a first one, and what was before is as it was.

    White space aside, which decoders of parts make otherwise than those of the whole.
    """
    said = " ".join([SAID] * repeats)
    asked = {**ASKED_AGAIN, "content": " ".join([str(ASKED_AGAIN["content"])] * repeats)}
    messages = [ASKED]
    turn = said + rendering.decode([frame.end, *frame.after_text([asked])])
    text = rendering.text(messages, prompt=True)
    for _ in range(rounds):
        messages += [{"role": "assistant", "content": said}, asked]
        text += turn
        if _squeezed(rendering.text(messages, prompt=True)) != _squeezed(text):
            return False
    return True


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _holds(probe: Callable[[], bool]) -> bool:
    """A template that refuses the probe does not rewrite in that way."""
    try:
        return probe()
    except TemplateRefusal:
        return False

"""What a chat template does to history that appending does not: probed by rendering. Tells; changes nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.text.frame import ANSWERED, ASKED, ASKED_AGAIN, SAID, THOUGHT, CallStyle, wire_id
from stages.text.rendering import Rendering, TemplateRefusal, Written

_SAID: Written = {"role": "assistant", "content": SAID}
_SYSTEM: Written = {"role": "system", "content": "juliett"}
_REASONED: Written = {"role": "assistant", "content": f"<think>\n{THOUGHT}\n</think>\n\n{SAID}"}


def find_rewrites(
    rendering: Rendering, style: CallStyle | None, tool: Mapping[str, Any] | None, *, verbatim: bool
) -> tuple[str, ...]:
    """Names of what the template rewrites; none where a conversation only grows under it.

    Args:
        rendering: the template.
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
    return tuple(name for name, probe in named.items() if _holds(probe))


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


def _holds(probe: Callable[[], bool]) -> bool:
    """A template that refuses the probe does not rewrite in that way."""
    try:
        return probe()
    except TemplateRefusal:
        return False

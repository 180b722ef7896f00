"""Tool calls read out of one turn of text, in any of the formats models write them, piece by piece. Pure; never raises.

The formats are in ``formats/``, a file each. Nothing is repaired: a call that is not exactly right, or was cut, becomes a
``BadCall`` with one bounded line for the model, because a guessed argument is worse than an answer that says what was wrong.
"""

from collections.abc import Mapping
from typing import Any, Literal

from stages.records import BadCall, ToolCall
from stages.text.chat import call_id
from stages.text.formats.call_format import CallFormat
from stages.text.formats.deepseek import DeepSeekFormat
from stages.text.formats.exact import Exact
from stages.text.formats.found import Found
from stages.text.formats.gemma import GemmaFormat
from stages.text.formats.growing import GrowingText
from stages.text.formats.harmony import HarmonyFormat
from stages.text.formats.hermes import HermesFormat
from stages.text.formats.llama_json import LlamaJsonFormat
from stages.text.formats.mistral import MistralFormat
from stages.text.formats.pythonic import PythonicFormat
from stages.text.formats.scan import Draft
from stages.text.formats.xml_parameters import XmlFormat, typed

FormatName = Literal["harmony", "deepseek", "mistral", "xml", "hermes", "gemma", "llama_json", "pythonic"]
"""Names of the formats."""
FORMATS: dict[str, CallFormat] = {
    each.name: Exact(each)
    for each in (
        HarmonyFormat(),
        DeepSeekFormat(),
        MistralFormat(),
        XmlFormat(),
        HermesFormat(),
        GemmaFormat(),
        LlamaJsonFormat(),
        PythonicFormat(),
    )
}
"""By name. In the order in which a template is asked which of them it writes: the ones with marks of their own first."""


class TurnParser:
    """Reads one turn: ``feed`` its text in any pieces, then ``finish``."""

    def __init__(
        self,
        call_format: CallFormat,
        turn: int = 0,
        *,
        thinking: bool = False,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        """Begin a turn.

        Args:
            call_format: how calls are written.
            turn: number of the turn, for the ids of the calls.
            thinking: the prompt ended inside reasoning, so the turn begins in it.
            schemas: tool -> JSON schema of its arguments, for formats that do not say the types of values, or whose calls look
                like other text; ``None`` where nobody knows.
        """
        self._turn = turn
        self._schemas = (schemas or {}) if call_format.untyped else {}
        self._source = GrowingText()
        self._draft = Draft((schemas or {}).keys())
        self._reading = call_format.read(self._source, self._draft, thinking=thinking)

    def feed(self, text: str) -> None:
        """The next piece of the turn. Costs time for the piece, not for what came before."""
        if self._source.add(text):
            next(self._reading, None)

    def finish(self) -> tuple[str, tuple[ToolCall | BadCall, ...]]:
        """Text of the turn without its calls, and the calls in order, each under its own id."""
        self._source.close()
        for _ in self._reading:
            pass
        calls = (self._record(found, call_id(self._turn, index)) for index, found in enumerate(self._draft.calls))
        return self._draft.content(self._source.text), tuple(calls)

    def _record(self, found: Found, name_id: str) -> ToolCall | BadCall:
        if isinstance(found, str):
            return BadCall(name_id, found)
        name, arguments = found
        return ToolCall(name_id, name, typed(arguments, self._schemas[name]) if name in self._schemas else arguments)


def parse_calls(
    text: str,
    turn: int = 0,
    call_format: CallFormat = FORMATS["hermes"],
    *,
    thinking: bool = False,
    schemas: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[str, tuple[ToolCall | BadCall, ...]]:
    """A whole turn at once. See ``TurnParser``.

    Returns:
        The content, and the calls.
    """
    parser = TurnParser(call_format, turn, thinking=thinking, schemas=schemas)
    parser.feed(text)
    return parser.finish()


def format_named(name: str) -> CallFormat:
    """A format by its name.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in FORMATS:
        raise ValueError(f"expected a call format among {', '.join(FORMATS)}; got {name!r}, in calls; name one of them")
    return FORMATS[name]

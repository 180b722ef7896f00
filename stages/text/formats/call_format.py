"""What a way of writing calls is. The ways are the other files here; ``stages/text/calls.py`` chooses among them."""

from collections.abc import Sequence
from typing import Protocol

from stages.records import ToolCall
from stages.text.formats.growing import GrowingText, Reading
from stages.text.formats.scan import Draft


class CallFormat(Protocol):
    """A way of writing calls into the text of a turn."""

    @property
    def name(self) -> str:
        """What settings call it."""
        ...

    @property
    def untyped(self) -> bool:
        """Whether arguments are read as texts, to be given their types by the schema of the tool."""
        ...

    def write(self, calls: Sequence[ToolCall]) -> str:
        """Calls as text, without the token that ends the turn.

        Raises:
            ValueError: the format cannot hold them: they would not be read back as they are.
        """
        ...

    def read(self, source: GrowingText, draft: Draft, *, thinking: bool) -> Reading[None]:
        """Read a turn as it comes.

        Args:
            source: the turn.
            draft: takes content and calls.
            thinking: the prompt ended inside reasoning.
        """
        ...

"""Who hears of what happens to items and groups, beside what workers do: the trace, where somebody records."""

from typing import Protocol

from .groups import Closed
from .item import Item


class Observer(Protocol):
    """Called in the middle of a transition: it only takes note."""

    def opened(self, barrier: str, birth: int, origin: Item, size: int) -> None:
        """A group was opened from an item."""
        ...

    def closed(self, barrier: str, closed: Closed) -> None:
        """A group left its barrier, or was given up."""
        ...

    def dropped(self, node: str, item: Item, reason: str) -> None:
        """An item was given up."""
        ...

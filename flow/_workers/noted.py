"""Attempts of a stage before a durable edge: what the journal knows stands in for them, and what they come to is noted."""

from collections.abc import Awaitable, Callable
from typing import Any

from .._core.item import Item
from .._errors import format_path
from .._policy import Failure
from .._recalling import NodeNotes
from .hands import Hands


class Noted:
    """The attempts of one worker.

    Args:
        hands: the worker.
        notes: the journal of its stage.
        attempt: makes one.
        retried: takes note that an item failed, and gives the item to try again.
    """

    def __init__(
        self,
        hands: Hands,
        notes: NodeNotes,
        attempt: Callable[[Item], Awaitable[Any]],
        retried: Callable[[Item], Item],
    ) -> None:
        self._hands, self._notes, self._attempt, self._retried = hands, notes, attempt, retried
        self._is_recalled = False  # the outcome of the lease under way

    async def attempt(self, item: Item) -> Any:
        """Run the stage once, unless the journal knows what came of that already. No code of the user runs then."""
        while (recalled := self._notes.recall(item)) is not None:
            if not recalled.retried:
                self._is_recalled = True
                self._hands.lane.work_on([item.path], {"item": format_path(item.path), "recalled": True})
                return recalled.outcome
            item = self._retried(item)
        self._is_recalled = False
        self._notes.begin(item)
        return await self._attempt(item)

    def retried(self, item: Item, failure: Failure) -> None:
        """An attempt failed, and another follows."""
        self._notes.retried(item, failure)

    def made(self, item: Item, outcome: Any) -> None:
        """An attempt came to its end, and nothing has seen that yet.

        Raises:
            NotResumable: it is not what the stage is annotated with.
        """
        if not self._is_recalled:
            self._notes.made(item, outcome)

    def passed_on(self, item: Item) -> None:
        """What came of an item is on the edge."""
        self._notes.passed_on(item)

    def gone(self, item: Item) -> None:
        """Nothing came of an item."""
        self._notes.gone(item)

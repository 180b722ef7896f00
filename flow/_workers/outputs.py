"""What a stage gave, as items: one, or one for each value of ``Many``; and what it did not give, as reasons."""

from typing import Any, cast

from .._core.item import Item
from .._item import Failed, Filtered, Many
from .._policy import Failure


def outputs_of(item: Item, outcome: Any, version: int | None, *, alone: bool) -> list[Item]:
    """Make the items that a stage made of one.

    Args:
        item: the one.
        outcome: a value, ``Failed`` or ``Many``.
        version: what they are stamped with.
        alone: whether there may be one at most, as the item takes part in a group or holds a ticket.

    Raises:
        ValueError: there are more.
    """
    if isinstance(outcome, Many):
        values = cast("Many[Any]", outcome).values
        if alone and len(values) > 1:
            raise ValueError(
                f"expected at most one output for what takes part in a group or holds a ticket, got {len(values)}; "
                "hand on one value that holds them all"
            )
        return [
            Item(value, (*item.path, index), item.birth, item.member, item.retry, version, item.failed)
            for index, value in enumerate(values)
        ]
    if isinstance(outcome, Failed):
        failed = cast("Failed[Any]", outcome)
        return [item.derive(failed.value, version, failed.reason)]
    return [item.derive(outcome, version, item.failed)]  # a mark stays on what is made of a failure


def told(outcome: Filtered | Failed[Any]) -> str:
    """Why an item does not go on as it should, for people."""
    return f"{outcome.reason}: {outcome.detail}" if outcome.detail else outcome.reason


def failure_of(error: BaseException) -> Failure:
    """What is known of an error."""
    return Failure(type(error).__name__, str(error).splitlines()[0] if str(error) else "", error)

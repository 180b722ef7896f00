"""An item on its way, and the lease of one attempt on it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Wake = Callable[[], None]


@dataclass(slots=True)
class Item:
    """A value with its identity. Never changed once made: each stage makes new ones.

    Not a frozen dataclass, since those take three times as long to make, and one is made for every hand-over.

    Attributes:
        value: what the stages see.
        path: source counter, then one index for each fan-out.
        birth: number of the group (after a ``repeat``) or of the source item.
        member: index in its group; ``None`` outside repeat ... group.
        retry: recorded failures so far.
        version: version of the cell at the oldest dispatch that went into the value; ``None`` before any.
        failed: the reason, where the value stands for a failure.
    """

    value: Any
    path: tuple[int, ...]
    birth: int
    member: int | None = None
    retry: int = 0
    version: int | None = None
    failed: str | None = None

    def derive(self, value: Any, version: int | None, failed: str | None = None) -> "Item":
        """Make the item a stage made of this one."""
        return Item(value, self.path, self.birth, self.member, self.retry, version, failed)

    def retried(self) -> "Item":
        """Make the item to try again after a recorded failure. What its value is made of stays as it is."""
        return Item(self.value, self.path, self.birth, self.member, self.retry + 1, self.version, self.failed)


@dataclass(slots=True, eq=False)
class Lease:
    """One attempt's hold on an item. It ends in exactly one of settle, drop or give back.

    Attributes:
        item: the input.
        position: its place on the edge, to which it returns when the attempt is given up.
        attempt: executions of this retry before.
        retries: recorded failures at this node before, which its policy counts.
        version: version of the cell when the attempt began; ``None`` where the node reads none.
        open: False once ended.
    """

    item: Item
    position: int
    attempt: int
    retries: int = 0
    version: int | None = None
    open: bool = True

    def retry(self) -> None:
        """The attempt failed and is repeated with a higher retry number, so that executions count from 0 again."""
        self.item = self.item.retried()
        self.attempt = 0
        self.retries += 1

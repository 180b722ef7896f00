"""An item on its way, which is also the lease of the attempt under way at it."""

from collections.abc import Callable
from typing import Any

import msgspec

Wake = Callable[[], None]


class Item(msgspec.Struct, eq=False, array_like=True):
    """A value with its identity, in exactly one place: a buffer, leased by one attempt, or a node's state.

    Who it is never changes: ``path``, ``birth``, ``member`` and ``retry`` are those it was made with. What it carries changes
    in the one moment in which an attempt at it is committed: where a stage makes one value of one, the item itself travels on.
    A struct of C, since one is made or changed for every hand-over.

    Attributes:
        value: what the stages see.
        path: source counter, then one index for each fan-out.
        birth: number of the group (after a ``repeat``) or of the source item.
        member: index in its group; ``None`` outside repeat ... group.
        retry: grows with each recorded failure, by 1 or, past numbers that copies of it may have used, by more.
        version: version of the cell at the oldest dispatch that went into the value; ``None`` before any.
        failed: the reason, where the value stands for a failure.
        position: its place on the edge, to which it returns when an attempt is given up.
        attempt: executions of this retry at this node before.
        retries: recorded failures at this node before, which its policy counts.
        seen: version of the cell when the attempt under way began; ``None`` where the node reads none.
        leased: whether an attempt is under way.
    """

    value: Any
    path: tuple[int, ...]
    birth: int
    member: int | None = None
    retry: int = 0
    version: int | None = None
    failed: str | None = None
    position: int = 0
    attempt: int = 0
    retries: int = 0
    seen: int | None = None
    leased: bool = False

    def derive(self, value: Any, version: int | None, failed: str | None = None) -> "Item":
        """Make the item a stage made of this one."""
        return Item(value, self.path, self.birth, self.member, self.retry, version, failed)

    def retried(self) -> "Item":
        """Make the item to try again after a recorded failure, on the same lease; executions count from 0 again.

        A new one, since a context of the failed attempt may still be around and must not change its key.
        """
        again = Item(self.value, self.path, self.birth, self.member, self.retry + 1, self.version, self.failed)
        again.position, again.retries, again.seen, again.leased = self.position, self.retries + 1, self.seen, self.leased
        self.leased = False
        return again

"""A bounded edge: lease, then settle; wait for room, then put. Synchronous; the waiting is the shell's.

An item is in the buffer or leased. Room is freed when an item is leased; a lease that is given back returns to its old
place even if the edge is full by then, so giving back can never fail.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from .item import Item, Lease, Wake


class Line:
    """Waiters, first come first served. Only the first may pass, so nobody is overtaken.

    Attributes:
        waiting: who stands in the line, the first first. To look at.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[Wake] = deque()

    def __len__(self) -> int:
        return len(self.waiting)

    def join(self, wake: Wake) -> None:
        """Stand at the end of the line."""
        self.waiting.append(wake)

    def leads(self, wake: Wake) -> bool:
        """Whether this waiter is the first."""
        return self.waiting[0] is wake

    def leave(self, wake: Wake) -> None:
        """Step out, served or cancelled. The new first is woken to look for itself, so a wake-up can never be lost."""
        self.waiting.remove(wake)
        self.wake_first()

    def wake_first(self) -> None:
        """Tell the first that something changed."""
        if self.waiting:
            self.waiting[0]()


class Channel:
    """One edge of a running graph.

    Attributes:
        name: ``producer->consumer``.
        max_items: bound in items.
        max_cost: bound in cost, ``None`` for none.
        producers: the line for room.
        on_item: called when an item arrives or comes back, and when the edge closes; set by the one consumer that waits.
        buffer: items with their positions, oldest first. To look at.
        put_count: items ever put.
        high_water: most items in the buffer so far.
    """

    __slots__ = (
        "_cost", "_history", "_leased", "_measure", "_positions", "buffer", "closed", "high_water", "max_cost",
        "max_items", "name", "on_item", "producers", "put_count",
    )  # fmt: skip

    def __init__(
        self, name: str, max_items: int, max_cost: float | None = None, measure: Callable[[Any], float] | None = None
    ) -> None:
        self.name, self.max_items, self.max_cost = name, max_items, max_cost
        self.producers = Line()
        self.on_item: Wake | None = None
        self.closed = False
        self.put_count = self.high_water = 0
        self.buffer: deque[tuple[int, Item]] = deque()
        self._measure = measure
        self._cost = 0.0
        self._leased = 0
        self._positions = 0
        self._history: dict[int, tuple[int, int]] = {}  # position -> (attempt, retries) of what was given back

    def __len__(self) -> int:
        return len(self.buffer)

    @property
    def leased(self) -> int:
        """Items out on a lease."""
        return self._leased

    @property
    def cost(self) -> float:
        """Cost in the buffer."""
        return self._cost

    @property
    def ended(self) -> bool:
        """Whether no item will come: closed, empty, and no lease out that could come back."""
        return self.closed and not self.buffer and not self._leased

    @property
    def waiting(self) -> Sequence[Item]:
        """Items in the buffer, oldest first."""
        return [item for _, item in self.buffer]

    @property
    def oldest(self) -> int | None:
        """Position of the first item in the buffer."""
        return self.buffer[0][0] if self.buffer else None

    def fits(self, items: Sequence[Item]) -> bool:
        """Whether there is room for all of these. What could never fit is let into an empty edge."""
        cost = 0.0 if self.max_cost is None else sum(map(self._cost_of, items))  # first, so that put cannot fail on it
        if not self.buffer:
            return True
        if len(self.buffer) + len(items) > self.max_items:
            return False
        return self.max_cost is None or self._cost + cost <= self.max_cost

    @property
    def takes_one(self) -> bool:
        """Whether one more item has room at once: nobody waits in line, and no cost has to be looked at."""
        return not self.producers.waiting and self.max_cost is None and len(self.buffer) < self.max_items

    def put_one(self, item: Item) -> None:
        """``put`` for one item where there is no cost; what every plain hand-over goes through."""
        assert not self.closed, f"{self.name} is closed"
        self.buffer.append((self._positions, item))
        self._positions += 1
        self.put_count += 1
        if len(self.buffer) > self.high_water:
            self.high_water = len(self.buffer)
        if self.on_item is not None:
            self.on_item()

    def put(self, items: Sequence[Item]) -> None:
        """Add items at the end. The caller has seen that they fit, in the same moment."""
        assert not self.closed, f"{self.name} is closed"
        for item in items:
            self.buffer.append((self._positions, item))
            self._positions += 1
            self._cost += self._cost_of(item)
        self.put_count += len(items)
        if len(self.buffer) > self.high_water:
            self.high_water = len(self.buffer)
        self._notify()

    def take(self, index: int = 0) -> Lease:
        """Lease the item at this index of the buffer."""
        if index == 0:
            position, item = self.buffer.popleft()
        else:
            position, item = self.buffer[index]
            del self.buffer[index]
        if self._measure is not None:
            self._cost = self._cost - self._measure(item.value) if self.buffer else 0.0  # no rounding outlives an empty edge
        self._leased += 1
        if self.producers.waiting:
            self.producers.waiting[0]()
        if not self._history:
            return Lease(item, position, 0)
        return Lease(item, position, *self._history.pop(position, (0, 0)))

    def settle(self, lease: Lease) -> None:
        """The attempt is over and the item with it."""
        self._end(lease)
        if self.closed and not self._leased and not self.buffer:
            self._notify()

    def give_back(self, lease: Lease) -> None:
        """The attempt is over and the item is not: it returns to its old place, one attempt older."""
        self._end(lease)
        self._history[lease.position] = (lease.attempt + 1, lease.retries)
        index = 0
        while index < len(self.buffer) and self.buffer[index][0] < lease.position:
            index += 1
        self.buffer.insert(index, (lease.position, lease.item))
        self._cost += self._cost_of(lease.item)
        self._notify()

    def close(self) -> None:
        """No item will be put any more."""
        self.closed = True
        self._notify()

    def _end(self, lease: Lease) -> None:
        assert lease.open, f"{self.name}: a lease can end only once"
        lease.open = False
        self._leased -= 1

    def _cost_of(self, item: Item) -> float:
        return self._measure(item.value) if self._measure else 0.0

    def _notify(self) -> None:
        if self.on_item is not None:
            self.on_item()

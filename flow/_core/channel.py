"""A bounded edge: lease, then settle; wait for room, then put. Synchronous; the waiting is the shell's.

An item is in the buffer or leased. Room is freed when an item is leased; an item that is given back returns to its old
place even if the edge is full by then, so giving back can never fail.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .item import Item, Wake


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
        consumers: the line for items; its first is told when one arrives or comes back, and when the edge ends.
        buffer: items, oldest first. To look at.
        put_count: items ever put.
        taken: items leased so far and not given back.
        out: items on a lease, by position.
        high_water: most items in the buffer so far.
        low_water: a producer that waits for room is told of it when so few items are left, and not at each that goes.
        unwanted: whether the node behind it has all it was asked for, so that a choice of edges goes past this one.
    """

    __slots__ = (
        "_cost", "_measure", "buffer", "closed", "consumers", "high_water", "low_water", "max_cost", "max_items", "name", "out",
        "producers", "put_count", "taken", "unwanted",
    )  # fmt: skip

    def __init__(
        self, name: str, max_items: int, max_cost: float | None = None, measure: Callable[[Any], float] | None = None
    ) -> None:
        self.name, self.max_items, self.max_cost = name, max_items, max_cost
        self.producers, self.consumers = Line(), Line()
        self.closed = self.unwanted = False
        self.put_count = self.taken = self.high_water = 0
        self.out: dict[int, Item] = {}
        self.low_water = max_items
        self.buffer: deque[Item] = deque()
        self._measure = measure
        self._cost = 0.0

    def __len__(self) -> int:
        return len(self.buffer)

    @property
    def leased(self) -> int:
        """Items out on a lease."""
        return len(self.out)

    @property
    def cost(self) -> float:
        """Cost in the buffer."""
        return self._cost

    @property
    def ended(self) -> bool:
        """Whether no item will come: closed, empty, and no lease out that could come back."""
        return self.closed and not self.buffer and not self.out

    @property
    def oldest(self) -> int | None:
        """Position of the first item in the buffer."""
        return self.buffer[0].position if self.buffer else None

    def fits(self, items: Sequence[Item]) -> bool:
        """Whether there is room for all of these. What could never fit is let into an empty edge."""
        cost = 0.0 if self.max_cost is None else sum(map(self._cost_of, items))  # first, so that put cannot fail on it
        if not self.buffer:
            return True
        if len(self.buffer) + len(items) > self.max_items:
            return False
        return self.max_cost is None or self._cost + cost <= self.max_cost

    @property
    def room(self) -> int:
        """How many items of no cost may be put at once by somebody who does not stand in line."""
        return 0 if self.producers.waiting or self._measure is not None else self.max_items - len(self.buffer)

    @property
    def space(self) -> int:
        """The same for the only producer."""
        return self.max_items - len(self.buffer)

    def put(self, items: Sequence[Item]) -> None:
        """Add items at the end. The caller has seen that they fit, in the same moment."""
        assert not self.closed, f"{self.name} is closed"
        position = self.put_count
        for item in items:
            item.position, item.attempt, item.retries = position, 0, 0
            position += 1
            self.buffer.append(item)
            self._cost += self._cost_of(item)
        self.added(len(items))

    def added(self, count: int) -> None:
        """So many items are at the end of the buffer, their positions following on ``put_count``: count them."""
        self.put_count += count
        if len(self.buffer) > self.high_water:
            self.high_water = len(self.buffer)
        if self.consumers.waiting:
            self.consumers.waiting[0]()

    def take(self, index: int = 0) -> Item:
        """Lease the item at this index of the buffer."""
        if index == 0:
            item = self.buffer.popleft()
        else:
            item = self.buffer[index]
            del self.buffer[index]
        if self._measure is not None:
            self._cost = self._cost - self._measure(item.value) if self.buffer else 0.0  # no rounding outlives an empty edge
        item.leased = True
        self.out[item.position] = item
        self.taken += 1
        if self.producers.waiting and len(self.buffer) <= self.low_water:
            self.producers.waiting[0]()
        return item

    def went(self, count: int) -> None:
        """So many items of no cost left the head of the buffer and are settled, all in one moment: count them."""
        self.taken += count
        if self.producers.waiting and len(self.buffer) <= self.low_water:
            self.producers.waiting[0]()
        if self.closed and self.ended:
            self.consumers.wake_first()

    def settle(self, item: Item) -> None:
        """The attempt is over and the item with it."""
        self._end(item)
        if self.closed and not self.out and not self.buffer:
            self.consumers.wake_first()

    def give_back(self, item: Item) -> None:
        """The attempt is over and the item is not: it returns to its old place, one attempt older."""
        self._end(item)
        self.taken -= 1
        item.attempt += 1
        index = 0
        while index < len(self.buffer) and self.buffer[index].position < item.position:
            index += 1
        self.buffer.insert(index, item)
        self._cost += self._cost_of(item)
        self.consumers.wake_first()

    def retried(self, item: Item) -> Item:
        """The attempt failed and another follows on the same lease: the item to make it at, one retry older."""
        again = self.out[item.position] = item.retried()
        return again

    def close(self) -> None:
        """No item will be put any more."""
        self.closed = True
        self.consumers.wake_first()

    def resume(self, items: Iterable[Item], put_count: int, high_water: int, *, closed: bool) -> None:
        """Go on from a snapshot: an empty edge gets what was on it."""
        self.buffer.extend(items)
        self._cost = sum(map(self._cost_of, self.buffer))
        self.put_count, self.taken = put_count, put_count - len(self.buffer)
        self.high_water, self.closed = high_water, closed

    def stop_waiting_to_put(self, wake: Wake) -> None:
        """Leave the line for room, served or cancelled. The next is woken where there is still room."""
        self.producers.waiting.remove(wake)
        if self.producers.waiting and (len(self.buffer) < self.max_items or not self.buffer):
            self.producers.waiting[0]()

    def stop_waiting_to_take(self, wake: Wake) -> None:
        """Leave the line for items, served or cancelled. The next is woken where there is something to see."""
        self.consumers.waiting.remove(wake)
        if self.consumers.waiting and (self.buffer or self.closed):
            self.consumers.waiting[0]()

    def _end(self, item: Item) -> None:
        assert item.leased, f"{self.name}: a lease can end only once"
        item.leased = False
        del self.out[item.position]

    def _cost_of(self, item: Item) -> float:
        return self._measure(item.value) if self._measure else 0.0

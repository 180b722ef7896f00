"""One edge and those who wait at both its ends, who come, look, act, and leave for good without acting.

The promise of a line: nobody sleeps at its head while there is something for him. ``check`` looks for one who does.
"""

import random
from collections import deque

from flow._core.channel import Channel
from flow._core.item import Item

OPERATIONS = ("come_to_take", "come_to_put", "look", "look", "leave", "settle", "give_back", "close")


class Waiter:
    """Someone in a line, awake from the moment he was called until he has looked."""

    def __init__(self) -> None:
        self.awake = True

    def __call__(self) -> None:
        self.awake = True


class WaitingWorld:
    """Waiters at one edge."""

    def __init__(self, max_items: int) -> None:
        self.channel = Channel("a->b", max_items)
        self.takers: deque[Waiter] = deque()
        self.putters: deque[Waiter] = deque()
        self.leases: list[Item] = []
        self.number = 0

    def come_to_take(self, rnd: random.Random) -> None:
        self.takers.append(Waiter())
        self.channel.consumers.join(self.takers[-1])

    def come_to_put(self, rnd: random.Random) -> None:
        if not self.channel.closed:
            self.putters.append(Waiter())
            self.channel.producers.join(self.putters[-1])

    def look(self, rnd: random.Random) -> None:
        """Someone who is awake looks, acts if he is first and can, and sleeps on otherwise."""
        awake = [waiter for waiter in (*self.takers, *self.putters) if waiter.awake]
        if not awake:
            return
        waiter = rnd.choice(awake)
        waiter.awake = False
        channel = self.channel
        if waiter in self.takers and channel.consumers.leads(waiter) and (channel.buffer or channel.ended):
            if channel.buffer:
                self.leases.append(channel.take())
            self._leave(waiter)
        elif waiter in self.putters and channel.producers.leads(waiter) and channel.fits([Item(0, (0,), 0)]):
            channel.put([Item(self.number, (self.number,), self.number)])
            self.number += 1
            self._leave(waiter)

    def leave(self, rnd: random.Random) -> None:
        """Someone is cancelled, rather one who was just called."""
        waiters = [*self.takers, *self.putters]
        awake = [waiter for waiter in waiters if waiter.awake]
        if waiters:
            self._leave(rnd.choice(awake or waiters))

    def _leave(self, waiter: Waiter) -> None:
        if waiter in self.takers:
            self.takers.remove(waiter)
            self.channel.stop_waiting_to_take(waiter)
        else:
            self.putters.remove(waiter)
            self.channel.stop_waiting_to_put(waiter)

    def settle(self, rnd: random.Random) -> None:
        if self.leases:
            self.channel.settle(self.leases.pop(rnd.randrange(len(self.leases))))

    def give_back(self, rnd: random.Random) -> None:
        if self.leases:
            self.channel.give_back(self.leases.pop(rnd.randrange(len(self.leases))))

    def close(self, rnd: random.Random) -> None:
        if not self.putters and rnd.random() < 0.05:
            self.channel.close()

    def check(self) -> None:
        channel = self.channel
        assert not self.takers or self.takers[0].awake or not (channel.buffer or channel.ended), "the first reader sleeps"
        assert not self.putters or self.putters[0].awake or not channel.fits([Item(0, (0,), 0)]), "the first writer sleeps"

    def run(self, seed: int, count: int) -> None:
        """So many random operations, checked after each."""
        rnd = random.Random(seed)
        weights = [rnd.choice((0.3, 1, 3)) for _ in OPERATIONS]
        for operation in rnd.choices(OPERATIONS, weights, k=count):
            getattr(self, operation)(rnd)
            self.check()

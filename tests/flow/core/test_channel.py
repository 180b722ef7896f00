"""One bounded edge: an item is in the buffer, out on a lease, or ended, and never in two places or in none."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from waiting_world import WaitingWorld

from flow._core.channel import Channel, Line
from flow._core.item import Item


def item(number: int) -> Item:
    return Item(number, (number,), number)


def values(channel: Channel) -> list[int]:
    return [item.value for item in channel.buffer]


class ChannelMachine(RuleBasedStateMachine):
    """The channel against a model of three lists. Rules C1 (one place), C3 (back to the old place), C4 (the end)."""

    @initialize(max_items=st.integers(1, 5), max_cost=st.none() | st.integers(1, 12))
    def start(self, max_items, max_cost):
        self.channel = Channel("a->b", max_items, max_cost, None if max_cost is None else lambda value: 1 + value % 4)
        self.notified = 0
        self.channel.consumers.join(self.hear)
        self.put_so_far = 0
        self.buffer: list[int] = []
        self.leases: dict[int, Item] = {}
        self.attempts: dict[int, int] = {}
        self.ended: list[int] = []

    def hear(self):
        self.notified += 1

    @precondition(lambda self: not self.channel.closed)
    @rule(count=st.integers(1, 4))
    def put_what_fits(self, count):
        items = [item(self.put_so_far + offset) for offset in range(count)]
        room = len(self.buffer) + count <= self.channel.max_items
        cost = sum(1 + number % 4 for number in [*self.buffer, *(i.value for i in items)])
        room = room and (self.channel.max_cost is None or cost <= self.channel.max_cost)
        assert self.channel.fits(items) == (room or not self.buffer)
        if self.channel.fits(items):
            before = self.notified
            self.channel.put(items)
            assert self.notified > before
            self.buffer += [i.value for i in items]
            self.put_so_far += count

    @precondition(lambda self: self.buffer)
    @rule(choice=st.data())
    def take(self, choice):
        index = choice.draw(st.just(0) | st.integers(0, len(self.buffer) - 1))
        lease = self.channel.take(index)
        number = self.buffer.pop(index)
        assert lease.value == lease.position == number
        assert lease.attempt == self.attempts.get(number, 0)
        self.leases[number] = lease

    @precondition(lambda self: self.leases)
    @rule(choice=st.data())
    def settle(self, choice):
        number = choice.draw(st.sampled_from(sorted(self.leases)))
        self.channel.settle(self.leases.pop(number))
        self.ended.append(number)

    @precondition(lambda self: self.leases)
    @rule(choice=st.data())
    def give_back(self, choice):
        number = choice.draw(st.sampled_from(sorted(self.leases)))
        before = self.notified
        self.channel.give_back(self.leases.pop(number))
        assert self.notified > before
        self.attempts[number] = self.attempts.get(number, 0) + 1
        self.buffer = sorted([*self.buffer, number])

    @rule()
    def close(self):
        self.channel.close()

    @invariant()
    def every_item_is_in_exactly_one_place(self):
        assert sorted([*self.buffer, *self.leases, *self.ended]) == list(range(self.put_so_far))
        assert values(self.channel) == self.buffer
        assert self.channel.leased == len(self.leases)
        assert self.channel.put_count == self.put_so_far
        assert self.channel.taken == len(self.leases) + len(self.ended)

    @invariant()
    def the_end_is_seen_only_when_nothing_can_come_back(self):
        assert self.channel.ended == (self.channel.closed and not self.buffer and not self.leases)

    @invariant()
    def cost_is_that_of_the_buffer(self):
        wanted = 0 if self.channel.max_cost is None else sum(1 + number % 4 for number in self.buffer)
        assert self.channel.cost == wanted


ChannelMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestChannelMachine = ChannelMachine.TestCase


def test_closing_with_a_lease_out_is_not_the_end():
    """C4, S19: the lease may come back, and its item must still be seen."""
    channel = Channel("a->b", 4)
    channel.put([item(0)])
    lease = channel.take()
    channel.close()
    assert not channel.ended
    channel.give_back(lease)
    assert values(channel) == [0]
    channel.settle(channel.take())
    assert channel.ended


def test_the_last_lease_tells_the_reader_of_the_end():
    """S22: a reader that waits hears of the end when the last lease is settled, not only when the edge is closed."""
    channel = Channel("a->b", 4)
    heard: list[bool] = []
    channel.put([item(0)])
    lease = channel.take()
    channel.close()
    channel.consumers.join(lambda: heard.append(channel.ended))
    channel.settle(lease)
    assert heard == [True]


def test_giving_back_never_fails_for_want_of_room():
    channel = Channel("a->b", 1)
    channel.put([item(0)])
    lease = channel.take()
    channel.put([item(1)])
    channel.give_back(lease)
    assert values(channel) == [0, 1]
    assert not channel.fits([item(2)])


def test_what_is_heavier_than_the_bound_enters_an_empty_edge():
    """C5: it is never refused for ever, and never joins others."""
    channel = Channel("a->b", 9, max_cost=10, measure=float)
    assert channel.fits([item(50)])
    channel.put([item(50)])
    assert not channel.fits([item(1)])
    channel.take()
    assert channel.fits([item(1)])


def test_costs_leave_no_rounding_error_behind():
    channel = Channel("a->b", 9, max_cost=0.35, measure=lambda value: 0.1)
    for _ in range(1000):
        for number in range(3):
            assert channel.fits([item(number)])
            channel.put([item(number)])
        for _ in range(3):
            channel.settle(channel.take())
    assert channel.cost == 0


def test_a_retry_is_remembered_when_the_lease_goes_back():
    """S15: a cancel must not give an item its retries anew; executions of the new retry count from 0."""
    channel = Channel("a->b", 4)
    channel.put([item(0)])
    channel.give_back(channel.take())
    lease = channel.take()
    assert (lease.attempt, lease.retries) == (1, 0)
    lease = lease.retried()
    assert (lease.retry, lease.attempt, lease.retries) == (1, 0, 1)
    channel.give_back(lease)
    again = channel.take()
    assert (again.retry, again.attempt, again.retries) == (1, 1, 1)


def test_who_leaves_the_line_wakes_the_next():
    """C3: a producer cancelled after its wake-up passes it on, so that room is never missed."""
    line, woken = Line(), []
    first, second = (lambda: woken.append(1)), (lambda: woken.append(2))
    line.join(first)
    line.join(second)
    assert line.leads(first)
    line.wake_first()
    line.leave(first)
    assert woken == [1, 2]
    assert line.leads(second)


def test_who_stands_behind_may_leave_the_line():
    line, woken = Line(), []
    first, second = (lambda: woken.append(1)), (lambda: woken.append(2))
    line.join(first)
    line.join(second)
    line.leave(second)
    assert line.leads(first)
    assert len(line) == 1


@pytest.mark.parametrize("max_items", [1, 2, 5])
def test_nobody_sleeps_at_the_head_of_a_line_while_there_is_something_for_him(max_items):
    """C3, S13: whoever acts or is cancelled passes the wake-up on, in any order of coming, looking and leaving."""
    for seed in range(40):
        WaitingWorld(max_items).run(seed, 200)

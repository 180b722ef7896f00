"""Pools: units are conserved, granted all at once, in order, downstream first."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flow._core.pools import Pools, Request

NAMES = ("a", "b", "c")


def ignore() -> None:
    """A wake-up nobody waits for."""


class PoolsMachine(RuleBasedStateMachine):
    """Random requests and releases. Rules S3 (atomic), S4 (order)."""

    @initialize(sizes=st.fixed_dictionaries({name: st.integers(1, 4) for name in NAMES}))
    def start(self, sizes):
        self.pools = Pools(sizes)
        self.made: list[tuple[Request, dict[str, int], int]] = []  # in order of arrival, with needs and depth
        self.woken: set[int] = set()

    @rule(choice=st.data(), depth=st.integers(0, 3))
    def request(self, choice, depth):
        names = choice.draw(st.sets(st.sampled_from(NAMES), min_size=1))
        needs = {name: choice.draw(st.integers(1, self.pools.sizes[name])) for name in sorted(names)}
        number = len(self.made)
        self.made.append((self.pools.request(needs, depth, lambda: self.woken.add(number)), needs, depth))

    @precondition(lambda self: self.made)
    @rule(choice=st.data(), twice=st.booleans())
    def release(self, choice, twice):
        number = choice.draw(st.integers(0, len(self.made) - 1))
        request = self.made[number][0]
        self.pools.release(request)
        if twice:
            self.pools.release(request)
        self.made[number] = (request, {}, -1)  # gone

    def alive(self) -> list[tuple[Request, dict[str, int], int]]:
        return [entry for entry in self.made if entry[2] >= 0]

    @invariant()
    def units_are_conserved(self):
        for name, size in self.pools.sizes.items():
            held = sum(needs.get(name, 0) for request, needs, _ in self.alive() if request.granted)
            assert self.pools.free[name] + held == size
            assert self.pools.free[name] >= 0
        assert self.pools.waiting == sum(not request.granted for request, _, _ in self.alive())

    @invariant()
    def nobody_waits_for_what_is_free_unless_somebody_ahead_waits_for_the_same(self):
        waiting = [(request, needs, depth) for request, needs, depth in self.alive() if not request.granted]
        in_order = sorted(waiting, key=lambda entry: -entry[2])  # stable: first come first served within a depth
        blocked: set[str] = set()
        for _, needs, _ in in_order:
            fits = all(self.pools.free[name] >= units for name, units in needs.items())
            assert not fits or not blocked.isdisjoint(needs)
            blocked |= set(needs)


PoolsMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestPoolsMachine = PoolsMachine.TestCase


def test_several_pools_are_granted_together_or_not_at_all():
    """S3: half a grant is a deadlock in waiting."""
    pools = Pools({"engine": 1, "sandbox": 1})
    first = pools.request({"engine": 1}, 0, ignore)
    both = pools.request({"engine": 1, "sandbox": 1}, 0, ignore)
    assert first.granted
    assert not both.granted
    assert pools.free == {"engine": 0, "sandbox": 1}
    pools.release(first)
    assert both.granted
    assert pools.free == {"engine": 0, "sandbox": 0}


def test_downstream_goes_first():
    """S4: a judge before a rollout, else groups never close."""
    pools = Pools({"engine": 1})
    holder = pools.request({"engine": 1}, 0, ignore)
    rollout, judge = pools.request({"engine": 1}, 1, ignore), pools.request({"engine": 1}, 2, ignore)
    pools.release(holder)
    assert judge.granted
    assert not rollout.granted


def test_a_large_request_is_not_overtaken_by_small_ones():
    pools = Pools({"engine": 3})
    holder = pools.request({"engine": 1}, 0, ignore)
    large, small = pools.request({"engine": 3}, 0, ignore), pools.request({"engine": 1}, 0, ignore)
    assert not small.granted
    pools.release(holder)
    assert large.granted
    assert not small.granted


def test_who_stops_waiting_lets_those_behind_pass():
    """C3: a waiter that is cancelled must not hold others back."""
    pools, woken = Pools({"engine": 2}), []
    pools.request({"engine": 1}, 0, ignore)
    large = pools.request({"engine": 2}, 0, ignore)
    small = pools.request({"engine": 1}, 0, lambda: woken.append("small"))
    pools.release(large)
    assert small.granted
    assert woken == ["small"]


def test_a_grant_that_was_made_and_not_yet_seen_can_be_released():
    """S13: a worker cancelled just after its grant gives the units back."""
    pools = Pools({"engine": 1})
    holder = pools.request({"engine": 1}, 0, ignore)
    waiting = pools.request({"engine": 1}, 0, ignore)
    pools.release(holder)
    assert waiting.granted
    pools.release(waiting)
    pools.release(waiting)
    assert pools.free == {"engine": 1}

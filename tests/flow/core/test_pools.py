"""Pools: units are conserved, granted all at once, in order, downstream first."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flow._core.pools import PATIENCE, Pools, Request

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


def test_nobody_is_overtaken_more_often_than_the_patience_beside_those_who_came_before():
    """S4: however deep the others, of a pool in which all are served at random, and of one that a large request waits for."""
    for seed in range(40):
        rnd = random.Random(seed)
        pools = Pools({"a": 3, "b": 2})
        waiting: dict[Request, tuple[dict[str, int], dict[str, int]]] = {}
        held: list[Request] = []
        grants = dict.fromkeys(pools.sizes, 0)
        for _ in range(600):
            if rnd.random() < 0.55 and len(waiting) < 12:
                needs = rnd.choice([{"a": 1}, {"a": 1}, {"a": 3}, {"b": 1}, {"a": 2, "b": 2}])
                before = {name: sum(name in other for other, _ in waiting.values()) for name in needs}
                request = pools.request(needs, rnd.choice([0, 0, 5]), ignore)
                waiting[request] = needs, {name: grants[name] + before[name] + PATIENCE for name in needs}
            elif held:
                pools.release(held.pop(rnd.randrange(len(held))))
            for request in [request for request in waiting if request.granted]:
                needs, most = waiting.pop(request)
                # Those granted in the same moment may be of either side of the bound: as many as there are units.
                assert all(grants[name] <= most[name] + pools.sizes[name] for name in needs), f"seed {seed}"
                grants |= {name: grants[name] + 1 for name in needs}
                held.append(request)


def test_who_waits_in_vain_for_one_pool_does_not_hold_up_the_patience_of_another():
    """S4: the oldest of all requests waits for what nobody releases; those deeper must not pass a younger one for ever."""
    pools = Pools({"stuck": 1, "engine": 1})
    pools.request({"stuck": 1}, 0, ignore)
    pools.request({"stuck": 1}, 0, ignore)
    holder, patient = pools.request({"engine": 1}, 1, ignore), pools.request({"engine": 1}, 0, ignore)
    overtaken = 0
    while not patient.granted:
        deeper = pools.request({"engine": 1}, 1, ignore)
        pools.release(holder)
        holder, overtaken = deeper, overtaken + 1
        assert overtaken <= PATIENCE + 1
    assert overtaken == PATIENCE + 1


def test_what_is_remembered_of_arrivals_does_not_grow_with_the_run():
    """A request that was served and released is forgotten, whatever waits before it."""
    pools = Pools({"stuck": 1, "engine": 1})
    holder = pools.request({"stuck": 1}, 0, ignore)
    served = pools.request({"stuck": 1}, 0, ignore)
    pools.release(holder)
    pools.release(served)
    for _ in range(500):
        first, second = pools.request({"engine": 1}, 0, ignore), pools.request({"engine": 1}, 0, ignore)
        pools.release(first)
        pools.release(second)
    assert sum(map(len, pools._arrivals.values())) <= 2


@pytest.mark.parametrize("rate", [0.5, 2.0, 7.0])
def test_a_rate_is_reached_and_in_no_window_exceeded(rate):
    """S3: in any t seconds at most rate x t + 1 starts, however the requests come; all of it where there is always one."""
    rnd, now, starts, asked = random.Random(0), 0.0, [], []
    due: list[float] = []
    pools = Pools({}, {"search": rate})
    pools.clock, pools.call_at = (lambda: now), due.append
    while now < 60:
        busy = now >= 30  # requests come now and then at first, later there is always one
        while busy and pools.waiting < 2:
            asked.append(pools.request({"search": 1}, 0, ignore))
        if not busy and rnd.random() < 0.3:
            asked.append(pools.request({"search": 1}, 0, ignore))
        starts += [now for request in asked if request.granted]
        asked = [request for request in asked if not request.granted]
        now = min([when for when in due if when > now] + [now + rnd.random()])
        pools.look()
    starts += [now for request in asked if request.granted]
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            assert last - first + 1 <= rate * (starts[last] - starts[first]) + 1 + 1e-6
    assert sum(start >= 30 for start in starts) >= rate * 30 - 1


def test_a_start_is_not_given_back():
    """S3: a rate counts starts, so a request that is released early has used its start."""
    pools = Pools({}, {"search": 1.0})
    first, second = pools.request({"search": 1}, 0, ignore), pools.request({"search": 1}, 0, ignore)
    pools.release(first)
    assert not second.granted
    pools.clock = lambda: 1.0
    pools.look()
    assert second.granted


def test_a_pool_that_shrinks_takes_nothing_away_and_grants_nothing_before_enough_came_back():
    """S5: resizing never revokes."""
    pools = Pools({"engine": 4})
    held = [pools.request({"engine": 1}, 0, ignore) for _ in range(4)]
    waiting = pools.request({"engine": 1}, 0, ignore)
    pools.resize("engine", 2)
    assert all(request.granted for request in held)
    assert pools.free == {"engine": -2}
    for count, request in enumerate(held[:3], start=1):
        assert not waiting.granted, f"after {count - 1} came back"
        pools.release(request)
    assert waiting.granted
    pools.resize("engine", 3)
    assert pools.free == {"engine": 1}

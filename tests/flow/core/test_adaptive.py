"""An adaptive pool finds how much a server takes: no formula here, but a server that is simulated apart from it."""

import heapq
import random

import pytest

from flow._core.adaptive import Adaptive
from flow._core.pools import Pools


def sizes_over_time(
    capacity: int, bounds: tuple[int, int], clients: int, seconds: float, slower_at: float = 1e9, noisy: bool = False
) -> list[int]:
    """Sizes of a pool before a server that serves so many at once in a second each and shares itself among more.

    From ``slower_at`` on it serves a quarter of them. Where it is noisy, a second is one on average.
    """
    rnd = random.Random(0)
    pools = Pools({"server": bounds})
    now, sizes = 0.0, [pools.sizes["server"]]
    pools.clock = lambda: now
    asked = [pools.request({"server": 1}, 0, lambda: None) for _ in range(clients)]
    ends: list[tuple[float, int]] = []
    started: set[int] = set()
    while now < seconds:
        able = capacity if now < slower_at else capacity // 4
        for index, request in enumerate(asked):
            if request.granted and index not in started:
                started.add(index)
                heapq.heappush(ends, (now + (rnd.expovariate(1) if noisy else 1.0) * max(1.0, len(started) / able), index))
        now, index = heapq.heappop(ends)
        started.remove(index)
        pools.release(asked[index])
        asked[index] = pools.request({"server": 1}, 0, lambda: None)
        sizes.append(pools.sizes["server"])
        assert bounds[0] <= sizes[-1] <= bounds[1]
    return sizes


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("capacity", [4, 24])
def test_a_pool_grows_to_what_the_server_takes_and_not_far_beyond(capacity, noisy):
    """S5: from the least on, up to where answers take two and a half times as long; and it stays there."""
    sizes = sizes_over_time(capacity, (1, 200), clients=80, seconds=400, noisy=noisy)
    assert sizes[0] == 1
    late = sizes[len(sizes) // 2 :]
    assert capacity <= sum(late) / len(late) <= 3 * capacity


def test_a_pool_shrinks_when_the_server_becomes_slower():
    sizes = sizes_over_time(16, (1, 200), clients=200, seconds=120, slower_at=60)
    assert min(sizes[len(sizes) // 2 :]) < 0.6 * max(sizes)


def test_a_pool_before_a_server_that_became_slow_for_good_grows_again():
    """The measure is taken anew at the least: each answer takes long now, however few there are at once."""
    limit, size, sizes = Adaptive(1, 60), 20, []
    for held_s in [1.0] * 2000 + [10.0] * 4000:
        size = limit.released(held_s, size, wanted=True)
        sizes.append(size)
    assert sizes[1999] > 20
    assert min(sizes[2000:]) == 1
    assert sizes[-1] > 20


def test_a_pool_does_not_grow_without_demand():
    sizes = sizes_over_time(16, (4, 200), clients=3, seconds=60)
    assert set(sizes) == {4}


def test_a_pool_stays_within_its_bounds():
    assert max(sizes_over_time(100, (2, 5), clients=50, seconds=60)) == 5
    assert min(sizes_over_time(1, (2, 5), clients=50, seconds=60)) == 2

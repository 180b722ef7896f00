"""Work that shares processors in virtual time, against what one works out on paper."""

import asyncio

import pytest

from flow.testing import run_virtual
from graphs.plan.shares import Shares, Thread


async def ends(capacity: float, pieces: list[tuple[float, float, float]]) -> list[float]:
    """When each of (begins, seconds, demand) is done."""
    shares, now = Shares(capacity), asyncio.get_running_loop().time

    async def one(begins: float, seconds: float, demand: float) -> float:
        await asyncio.sleep(begins)
        await shares.work(seconds, demand)
        return now()

    return list(await asyncio.gather(*(one(*piece) for piece in pieces)))


@pytest.mark.parametrize(
    ("capacity", "pieces", "expected"),
    [
        pytest.param(2.0, [(0, 3.0, 1.0), (0, 5.0, 1.0)], [3.0, 5.0], id="there is enough for both"),
        pytest.param(2.0, [(0, 3.0, 2.0), (0, 3.0, 2.0)], [6.0, 6.0], id="each has half of what it wants"),
        # Alone until 1, then both at half their pace until the short one is done at 5, then alone again.
        pytest.param(1.0, [(0, 4.0, 1.0), (1, 2.0, 1.0)], [6.0, 5.0], id="one comes later"),
        pytest.param(2.0, [(0, 2.0, 2.0), (0, 2.0, 1.0)], [3.0, 3.0], id="a third less for whoever wants one or two"),
    ],
)
def test_work_takes_as_much_longer_as_there_is_too_little(capacity, pieces, expected):
    assert run_virtual(ends(capacity, pieces)) == pytest.approx(expected)


def test_a_thread_does_one_thing_after_the_other_beside_what_else_the_processors_do():
    async def main() -> list[float]:
        shares, now = Shares(1.0), asyncio.get_running_loop().time
        thread, ends = Thread(shares), list[float]()

        async def one(seconds: float) -> None:
            await thread.work(seconds)
            ends.append(now())

        await asyncio.gather(shares.work(2.0, 1.0), one(1.0), one(1.5))
        return ends

    # The other work has half of the processor for four seconds, and the second piece of the thread waits for its first.
    assert run_virtual(main()) == pytest.approx([2.0, 4.5])


def test_who_is_cancelled_leaves_the_processors_to_the_others():
    async def main() -> float:
        shares = Shares(1.0)
        gone = asyncio.create_task(shares.work(10.0, 1.0))
        stays = asyncio.create_task(shares.work(2.0, 1.0))
        await asyncio.sleep(2.0)  # one second of work each
        gone.cancel()
        await stays
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(3.0)

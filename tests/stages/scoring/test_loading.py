"""One load of several: in force when everyone has it, and what comes of failures."""

import asyncio
from collections.abc import Callable

import pytest

from stages.records import Weights
from stages.scoring.loading import LoadWeights, load_all

WEIGHTS = Weights(None)


def loader(log: list[tuple[str, int]], name: str, seconds: float, fails: Exception | None = None) -> LoadWeights:
    async def load(weights: Weights, version: int) -> None:
        assert weights is WEIGHTS
        await asyncio.sleep(seconds)
        log.append((name, version))
        if fails is not None:
            raise fails

    return load


def test_a_version_is_in_force_once_the_slowest_has_it_and_all_begin_at_once() -> None:
    log: list[tuple[str, int]] = []
    loads = load_all(loader(log, "engine", 0.03), loader(log, "reference", 0.01), loader(log, "critic", 0.02))
    asyncio.run(loads(WEIGHTS, 3))
    assert log == [("reference", 3), ("critic", 3), ("engine", 3)]


@pytest.mark.parametrize("order", [lambda loads: loads, lambda loads: loads[::-1]])
def test_a_load_that_fails_is_raised_once_all_have_ended(order: Callable[[list[LoadWeights]], list[LoadWeights]]) -> None:
    log: list[tuple[str, int]] = []
    failing = loader(log, "reference", 0.0, fails=ValueError("of another model"))
    loads = load_all(*order([failing, loader(log, "engine", 0.01)]))
    with pytest.raises(ValueError, match="of another model"):
        asyncio.run(loads(WEIGHTS, 1))
    assert log == [("reference", 1), ("engine", 1)]


def test_a_cancelled_load_leaves_none_of_its_parts_at_work() -> None:
    log: list[tuple[str, int]] = []

    async def main() -> int:
        loading = asyncio.ensure_future(load_all(loader(log, "engine", 10.0), loader(log, "reference", 10.0))(WEIGHTS, 1))
        await asyncio.sleep(0.01)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
    assert log == []

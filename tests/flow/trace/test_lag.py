"""How late the loop is: measured against a callback that holds it up for a known time."""

import asyncio
import time

from flow.testing import run_virtual
from flow.trace import LoopLag


def test_a_callback_that_computes_shows_as_lag():
    async def main() -> LoopLag:
        lag = LoopLag()
        task = asyncio.create_task(lag.measure())
        await asyncio.sleep(0.03)
        time.sleep(0.04)  # noqa: ASYNC251 - the blocking call is what is measured
        await asyncio.sleep(0.02)
        task.cancel()
        return lag

    lag = asyncio.run(main())
    assert lag.max_ms >= 25
    assert lag.quantile_ms(1.0) == lag.max_ms


def test_a_loop_that_is_never_late_has_no_lag():
    async def main() -> LoopLag:
        lag = LoopLag()
        assert lag.quantile_ms(0.5) is None
        task = asyncio.create_task(lag.measure())
        await asyncio.sleep(5)
        task.cancel()
        return lag

    lag = run_virtual(main())
    assert lag.max_ms < 1e-3
    assert lag.quantile_ms(0.99) == lag.max_ms


def test_the_longest_delay_since_the_last_time_is_told_once():
    async def main() -> list[float]:
        lag = LoopLag()
        task = asyncio.create_task(lag.measure())
        await asyncio.sleep(0.03)
        time.sleep(0.04)  # noqa: ASYNC251 - the blocking call is what is measured
        await asyncio.sleep(0.02)
        task.cancel()
        return [lag.max_ms, lag.max_ms_since(), lag.max_ms_since()]

    longest, told, again = asyncio.run(main())
    assert told == longest >= 25
    assert again == 0.0

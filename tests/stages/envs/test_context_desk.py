"""The parent's side of a call whose environment is in a process."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from stages.envs.context_desk import ContextDesk
from stages.tools.context import tool_context_with


async def until(true: Callable[[], bool]) -> None:
    for _ in range(100):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come true in 100 turns of the loop")


def test_what_an_earlier_call_took_is_given_back_with_it_and_freeing_it_later_does_nothing() -> None:
    """An environment may take a permit in one step and free it in the next."""
    held: list[str] = []
    said: list[tuple[Any, ...]] = []
    faults: list[dict[str, Any]] = []

    @contextlib.asynccontextmanager
    async def permit(needs: Mapping[str, int]) -> AsyncGenerator[None]:
        held.extend(needs)
        try:
            yield
        finally:
            for name in needs:
                held.remove(name)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
        with tool_context_with(permit=permit):
            first = ContextDesk(said.append, 0)
            first.hear(("asks", 5, "permit", {"desks": 1}))
            await until(lambda: len(said) == 1)
            assert held == ["desks"]
            await first.close()
            assert held == []
            second = ContextDesk(said.append, 1)
            second.hear(("frees", 5))
            second.hear(("asks", 6, "permit", {"desks": 1}))
            await until(lambda: len(said) == 2)
            assert held == ["desks"]
            second.hear(("frees", 6))
            await until(lambda: not held)
            await second.close()

    asyncio.run(main())
    assert said == [("answers", 5, "gave", None), ("answers", 6, "gave", None)]
    assert faults == []

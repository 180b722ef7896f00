"""The parent's side of a call whose environment is in a process."""

import asyncio
import contextlib
from typing import Any

from stages.envs.context_desk import ContextDesk
from stages.tools.context import tool_context_with


def test_what_an_earlier_call_took_is_given_back_with_it_and_freeing_it_later_does_nothing():
    """An environment may take a permit in one step and free it in the next."""
    held: list[str] = []
    said: list[tuple[Any, ...]] = []
    faults: list[dict[str, Any]] = []

    @contextlib.asynccontextmanager
    async def permit(needs):
        held.extend(needs)
        try:
            yield
        finally:
            for name in needs:
                held.remove(name)

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
        with tool_context_with(permit=permit):
            first = ContextDesk(said.append, 0)
            first.hear(("asks", 5, "permit", {"desks": 1}))
            while not said:
                await asyncio.sleep(0)
            assert held == ["desks"]
            await first.close()
            assert held == []
            second = ContextDesk(said.append, 1)
            second.hear(("frees", 5))
            second.hear(("asks", 6, "permit", {"desks": 1}))
            while len(said) < 2:
                await asyncio.sleep(0)
            assert held == ["desks"]
            second.hear(("frees", 6))
            while held:
                await asyncio.sleep(0)
            await second.close()

    asyncio.run(main())
    assert said == [("answers", 5, "gave", None), ("answers", 6, "gave", None)]
    assert faults == []

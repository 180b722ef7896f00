"""The time limit of one step of an environment, whose clock stands still while its calls only wait for permits.

A full pool says nothing about an environment, and the wait for it shows as pool wait. While any call of the step holds a permit
the clock goes on: of two calls of one turn the second may wait for the very unit that the first, which hangs, holds.
Made by ``guards.py`` for each step.
"""

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from stages.tools.context import tool_context


class StepClock:
    """Starts when it is made.

    Attributes:
        scope: to be entered around the step; cancelled when the limit has passed.
    """

    def __init__(self, limit_s: float | None):
        """Begin.

        Args:
            limit_s: most seconds; ``None`` for no limit.
        """
        self.scope = anyio.CancelScope()
        self._left_s = math.inf if limit_s is None else limit_s
        self._since_s = anyio.current_time()
        self._waiting = self._holding = 0
        self._permit = tool_context().permit
        self._count()

    @asynccontextmanager
    async def permit(self, needs: Mapping[str, int]) -> AsyncGenerator[None]:
        """Hold units of pools as ``ToolContext.permit`` does; the wait for them does not count."""
        async with AsyncExitStack() as held:
            self._count(waiting=1)
            try:
                await held.enter_async_context(self._permit(needs))
            finally:
                self._count(waiting=-1)
            self._count(holding=1)
            held.callback(self._count, holding=-1)
            yield

    def _count(self, waiting: int = 0, holding: int = 0) -> None:
        """Calls wait or hold now that did not before, or the other way round."""
        now_s = anyio.current_time()
        if not self._stands:
            self._left_s -= now_s - self._since_s
        self._since_s = now_s
        self._waiting += waiting
        self._holding += holding
        self.scope.deadline = math.inf if self._stands else now_s + self._left_s

    @property
    def _stands(self) -> bool:
        return self._waiting > 0 and self._holding == 0

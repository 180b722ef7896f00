"""The surroundings of tools that run in the process of an environment: what ``tools/context.py`` has, asked of the parent.

The child's side; the parent's is ``context_desk.py``. What is shown of a call goes the same way, see ``flow.elsewhere``.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from typing import Any

from stages.envs.context_desk import Terms


class RemoteContext:
    """Asks through a connection, for any number of calls at once.

    Args:
        send: to the parent, from any thread.
    """

    def __init__(self, send: Callable[[tuple[Any, ...]], None]) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._asked: dict[int, Future[Any]] = {}

    def fields(self, terms: Terms) -> dict[str, Any]:
        """Fields of ``ToolContext`` for one call of the environment."""
        count = self.count_tokens if terms.counts else None
        return {
            "permit": self.permit, "count_tokens": count, "audit": self.audit, "attempt": terms.attempt, "key": terms.key,
        }  # fmt: skip

    def hear(self, number: int, outcome: str, value: Any) -> None:
        """Take the parent's answer. In a thread that nothing here waits in."""
        future = self._asked.pop(number)
        if outcome == "raised":
            future.set_exception(value)
        else:
            future.set_result(value)

    @contextlib.asynccontextmanager
    async def permit(self, needs: Mapping[str, int]) -> AsyncGenerator[None]:
        """See ``ToolContext.permit``."""
        number, granted = self._ask("permit", dict(needs))
        try:
            await asyncio.wrap_future(granted)
            yield
        finally:
            self._send(("frees", number))

    def count_tokens(self, text: str) -> int:
        """See ``ToolContext.count_tokens``. Holds up the calling thread."""
        return self._ask("count", text)[1].result()

    def audit(self, row: Mapping[str, Any]) -> None:
        """See ``ToolContext.audit``. Holds up the calling thread: a call whose row cannot be written is not to be made."""
        self._ask("audit", dict(row))[1].result()

    def _ask(self, what: str, payload: Any) -> tuple[int, Future[Any]]:
        number, future = next(self._numbers), Future[Any]()
        future.set_running_or_notify_cancel()  # who waits no longer cannot cancel it: the answer comes all the same
        self._asked[number] = future
        self._send(("asks", number, what, payload))
        return number, future

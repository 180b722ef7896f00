"""What the contexts of a stage in a process lead to: each way back into the run is a message to the parent.

A read asks each time, so that it gives the newest value as it does elsewhere; the value itself comes only where this process
does not have it yet. Everything but permits may be used from any thread, as elsewhere.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from .._codec import Codec
from .._context import Desk, Versioned
from ..elsewhere import Teller
from .errors import unpack
from .messages import Ask, Granted, Message, Read, Refused, Return, Row, Value

_Answer: TypeAlias = Future[tuple[int, memoryview]]
"""Version and body; of a permit, nothing that matters."""


class ChildDesk:
    """The desk of a process.

    Attributes:
        desk: what contexts are made with.
        reads: how values of the cell are read; ``None`` where the node declares no cell.
        teller: where ``flow.span`` and its kin lead.
    """

    def __init__(self, node: str, say: Callable[[Message], None]) -> None:
        self._say = say
        self._asks: dict[int, _Answer] = {}
        self._numbers = itertools.count()
        self._known: Versioned[Any] | None = None
        self.reads: Codec | None = None
        self.teller = Teller(say)
        self.desk = Desk(node, self._read, self._permit, self.teller.span, self._report, self.teller.spent)

    def answered(self, message: Granted | Refused | Value, body: memoryview) -> None:
        """The parent answers what was asked. Called on the thread that listens."""
        answer = self._asks.pop(message.ask, None)
        if answer is None or not answer.set_running_or_notify_cancel():
            return
        if isinstance(message, Refused):
            answer.set_exception(unpack(message.error, "where the run is"))
        else:
            answer.set_result((message.version if isinstance(message, Value) else 0, body))

    def _expect(self) -> tuple[int, _Answer]:
        ask, answer = next(self._numbers), _Answer()
        self._asks[ask] = answer
        return ask, answer

    def _read(self) -> Versioned[Any]:
        known = self._known
        ask, answer = self._expect()
        self._say(Read(ask, -1 if known is None else known.version))
        version, body = answer.result()
        if not body and known is not None:
            return known
        assert self.reads is not None, "the parent refuses where there is no cell"
        newest = self._known = Versioned(self.reads.decode(body), version)
        return newest

    @asynccontextmanager
    async def _permit(self, needs: Mapping[str, int]) -> AsyncGenerator[None]:
        ask, answer = self._expect()
        self._say(Ask(ask, dict(needs)))
        try:
            await asyncio.wrap_future(answer)
            yield
        finally:
            self._asks.pop(ask, None)
            self._say(Return(ask))

    def _report(self, row: Mapping[str, Any]) -> None:
        self._say(Row(dict(row)))

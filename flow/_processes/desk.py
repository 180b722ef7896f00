"""What the contexts of a stage in a process lead to: each way back into the run is a message to the parent.

A read asks each time, so that it gives the newest value as it does elsewhere; the value itself comes only where this process
does not have it yet. Everything but permits may be used from any thread, as elsewhere.
"""

import asyncio
import dataclasses
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeAlias

from .._codec import Codec
from .._context import Desk, Versioned
from .._spans import UNSEEN, Listener
from .errors import unpack
from .messages import Ask, Closed, Granted, Happened, Message, Opened, Read, Refused, Return, Row, Stands, Value
from .shown import plain_args, plain_flows, plain_number, plain_text

_Answer: TypeAlias = Future[tuple[int, memoryview]]
"""Version and body; of a permit, nothing that matters."""


class ChildDesk:
    """The desk of a process.

    Attributes:
        desk: what contexts are made with.
        reads: how values of the cell are read; ``None`` where the node declares no cell.
        number: number of the call at work.
        owner: task of that call.
        listener: where ``flow.span`` and its kin lead; ``None`` where nobody records.
    """

    def __init__(self, node: str, marks: bool, say: Callable[[Message], None]) -> None:
        self._say = say
        self._asks: dict[int, _Answer] = {}
        self._numbers = itertools.count()
        self._known: Versioned[Any] | None = None
        self.reads: Codec | None = None
        self.number = -1
        self.owner: asyncio.Task[Any] | None = None
        self.desk = Desk(node, self._read, self._permit, self.span if marks else _unseen, self._report)
        self.listener: Listener | None = self if marks else None
        if marks:
            self.desk = dataclasses.replace(self.desk, spent=self._spent)

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

    # --- as a ``Listener``, where somebody records ---

    @contextmanager
    def span(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> Generator[None]:
        """See ``flow.span``."""
        number, span = self.number, next(self._numbers)
        self._say(
            Opened(number, span, self._strand(), plain_text(name), plain_args(args), plain_flows(flows), time.monotonic())
        )
        try:
            yield
        finally:
            self._say(Closed(number, span, time.monotonic()))

    def mark(self, name: str, args: Mapping[str, Any], flows: Sequence[int] = ()) -> None:
        """See ``flow.mark``."""
        self._say(
            Happened(self.number, self._strand(), plain_text(name), plain_args(args), plain_flows(flows), time.monotonic())
        )

    def count(self, name: str, value: float, unit: str) -> None:
        """See ``flow.count``."""
        self._say(Stands(self.number, plain_text(name), plain_number(value), plain_text(unit), time.monotonic()))

    def _spent(self, name: str, began_s: float, ended_s: float, args: Mapping[str, Any]) -> None:
        number, span = self.number, next(self._numbers)
        self._say(Opened(number, span, self._strand(), plain_text(name), plain_args(args), (), began_s))
        self._say(Closed(number, span, ended_s))

    def _strand(self) -> int:
        """0 for the attempt itself; else a number of the task or thread beside it."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return threading.get_ident()
        return 0 if task is None or task is self.owner else id(task)

    def _report(self, row: Mapping[str, Any]) -> None:
        self._say(Row(dict(row)))


def _unseen(name: str, args: Mapping[str, Any], flows: Sequence[int]) -> AbstractContextManager[None]:
    return UNSEEN

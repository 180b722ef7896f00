"""Serves what a process asks of the run while it handles an item: reads, permits, rows of metrics, spans.

The other side is ``desk``. Rows, reads and permits may come from a task that outlives its attempt, as they may elsewhere, so
they are served whichever call they come from; spans lie inside the slice of an attempt and are dropped with it.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from .._codec import Codec
from .._context import Context
from .._inside import Mark
from .._park import outlast
from .errors import pack
from .messages import Ask, Closed, Granted, Happened, Message, Opened, Read, Refused, Return, Row, Stands, Value

OnMark: TypeAlias = Callable[[Context, Mark], None]
Shown: TypeAlias = Opened | Closed | Happened | Stands
Asked: TypeAlias = Ask | Return | Read | Row | Shown


class Clerk:
    """Answers one process.

    Args:
        reads: how values of the cell are written; ``None`` where the node declares no cell.
        on_mark: hears of spans, moments and counters, in the order in which the process told them.
        say: sends a message to the process.
    """

    def __init__(self, reads: Codec | None, on_mark: OnMark | None, say: Callable[[Message, bytes], None]) -> None:
        self._reads, self._on_mark, self._say = reads, on_mark, say
        self._context: Context | None = None
        self._number = -1
        self._spans: dict[int, Opened] = {}
        self._permits: dict[int, asyncio.Task[None]] = {}

    def begin(self, number: int, context: Context) -> None:
        """A call began: what is asked from now on is for this context."""
        self._number, self._context = number, context

    def finish(self) -> None:
        """The call ended, and with it the spans that it left open."""
        self._number = -1
        for span in reversed(list(self._spans)):
            opened = self._spans.pop(span)
            self._mark(Mark("ends", opened.name, time.monotonic(), opened.task))

    async def close(self) -> None:
        """The process is gone: its permits are given back."""
        permits = list(self._permits.values())
        for permit in permits:
            permit.cancel()
        await outlast(permits)

    def serve(self, asked: Asked) -> None:
        """Do what was asked. Called on the loop.

        Raises:
            Exception: whoever takes rows or spans raised it.
        """
        context = self._context
        assert context is not None, "a process can ask only once it was called"
        if isinstance(asked, Row):
            context.report(asked.row)
        elif isinstance(asked, Read):
            self._read(context, asked)
        elif isinstance(asked, Ask):
            task = asyncio.get_running_loop().create_task(self._hold(context, asked), name=f"{context.node} permit")
            self._permits[asked.ask] = task
            task.add_done_callback(lambda _: self._permits.pop(asked.ask, None))
        elif isinstance(asked, Return):
            if asked.ask in self._permits:
                self._permits[asked.ask].cancel()
        elif asked.number == self._number:
            self._show(asked)

    def _read(self, context: Context, asked: Read) -> None:
        try:
            newest = context.read()
            assert self._reads is not None, "a node that reads has the type of its cell"
            body = b"" if newest.version == asked.known else self._reads.encode(newest.value)
        except Exception as error:
            self._say(Refused(asked.ask, pack(error)), b"")
        else:
            self._say(Value(asked.ask, newest.version), body)

    async def _hold(self, context: Context, asked: Ask) -> None:
        """Hold a permit until it is given back, which cancels this."""
        try:
            async with context.permit(asked.needs):
                self._say(Granted(asked.ask), b"")
                await asyncio.get_running_loop().create_future()
        except Exception as error:
            self._say(Refused(asked.ask, pack(error)), b"")

    def _show(self, asked: Shown) -> None:
        if isinstance(asked, Opened):
            self._spans[asked.span] = asked
            self._mark(Mark("begins", asked.name, asked.at_s, asked.task, asked.args, asked.flows))
        elif isinstance(asked, Happened):
            self._mark(Mark("happens", asked.name, asked.at_s, asked.task, asked.args, asked.flows))
        elif isinstance(asked, Stands):
            self._mark(Mark("stands", asked.name, asked.at_s, value=asked.value, unit=asked.unit))
        elif (opened := self._spans.pop(asked.span, None)) is not None:
            self._mark(Mark("ends", opened.name, asked.at_s, opened.task))

    def _mark(self, mark: Mark) -> None:
        assert self._on_mark is not None
        assert self._context is not None
        ahead_s = asyncio.get_running_loop().time() - time.monotonic()  # of the clock that a loop has of its own
        self._on_mark(self._context, replace(mark, at_s=mark.at_s + ahead_s))

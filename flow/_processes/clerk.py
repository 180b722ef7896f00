"""Serves what a process asks of the run while it handles an item: reads, permits, rows of metrics, spans.

The other side is ``desk``. Rows, reads and permits may come from a task that outlives its attempt, as they may elsewhere, so
they are served whichever call they come from; spans lie inside the slice of an attempt and are dropped with it.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from .._codec import Codec
from .._context import Context
from .._park import outlast
from ..elsewhere import Hearer
from .errors import pack
from .messages import Ask, Granted, Message, Read, Refused, Return, Row, Shown, Value

Asked: TypeAlias = Ask | Return | Read | Row | Shown


class Clerk:
    """Answers one process.

    Args:
        reads: how values of the cell are written; ``None`` where the node declares no cell.
        say: sends a message to the process.
    """

    def __init__(self, reads: Codec | None, say: Callable[[Message, bytes], None]) -> None:
        self._reads, self._say = reads, say
        self._context: Context | None = None
        self._hearer: Hearer
        self._permits: dict[int, asyncio.Task[None]] = {}

    def begin(self, number: int, context: Context) -> bool:
        """A call began, made by the running task: what is asked from now on is for this context.

        Returns:
            Whether somebody hears of spans, moments and counters.
        """
        self._context, self._hearer = context, Hearer(number)
        return self._hearer.call is not None

    def finish(self) -> None:
        """The call ended, and with it the spans that it left open."""
        self._hearer.end()

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
        else:
            self._hearer.hear(asked)

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

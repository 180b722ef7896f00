"""Cancellation, where code that is not ours raises it, and where work must not be cut short by it.

A client library may raise ``CancelledError`` out of a timeout of its own. That is a failure of the call; a real one must go on.
Shared by every family that awaits foreign code or has something to finish; it knows none of them.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import anyio

T = TypeVar("T")


def cancel_requested() -> bool:
    """True where the running task was asked to cancel and has not taken it back, natively or by an anyio scope.

    Ask it while handling ``asyncio.CancelledError``, outside of any cancel scope of your own.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def to_the_end(work: Awaitable[T]) -> T:
    """Await work that must not be cut short, in a task of its own, however often this one is cancelled meanwhile.

    A shielded cancel scope alone does not hold off a native ``Task.cancel``.

    Raises:
        asyncio.CancelledError: this task was cancelled; raised when the work is done. Where the work failed too, its error is
            the cause.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()

"""Telling a cancellation that somebody asked for from one that merely came up in code we called.

A client library may raise ``CancelledError`` out of a timeout of its own. That is a failure of the call; a real one must go on.
"""

import asyncio


def cancel_requested() -> bool:
    """True where the running task was asked to cancel and has not taken it back, natively or by an anyio scope.

    Ask it while handling ``asyncio.CancelledError``, outside of any cancel scope of your own.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

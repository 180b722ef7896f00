"""Exits that code which is not ours asks for: ``sys.exit()`` in a tool, an environment or a reward is a failure of its call.

Let through, such an exception passes every ``except Exception``, and out of a task it tears the event loop down under all
others. Not cancellation, which has a file of its own. Shared by every family that calls foreign code.
"""

import asyncio
import contextlib
import threading
from collections.abc import Generator


class ExitRaisedError(RuntimeError):
    """Code that is not ours raised ``SystemExit``, ``KeyboardInterrupt``, ``GeneratorExit`` or another exit of its own."""


@contextlib.contextmanager
def exits_as_errors() -> Generator[None]:
    """Raise, out of a block of code that is not ours, exits as errors.

    A ``KeyboardInterrupt`` on the main thread may be the user's and goes on; on any other it can only have been raised by hand.

    Raises:
        ExitRaisedError: the block raised an exit; its text tells which.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        raise ExitRaisedError(": ".join(part for part in (type(error).__name__, str(error)) if part)) from error

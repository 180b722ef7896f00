"""What an interrupt does: the first suspends the graph under way, the second aborts it, the third ends the process.

Also for SIGTERM, which leaves half of its grace period to what is under way, and the rest to the commit that follows. Whatever
hangs, a process that was interrupted twice comes to its end, with status 130.
"""

import asyncio
import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from flow import Run

WITHIN_S = 10.0
"""What attempts under way get to end after an interrupt; after SIGTERM it is half of the grace period."""
_ONE_INTERRUPT_S = 0.5
"""Some senders reach a process twice for one interrupt, as a member of its group and by name."""
_ABORTED_S = 5.0
"""What is left of the process after an abort: a thread of somebody else's may hold it for ever."""
_STATUS = 130


class Interrupted(RuntimeError):
    """A program was interrupted twice."""

    def __init__(self) -> None:
        super().__init__("interrupted twice: stopped where it stood, attempts under way are lost")


@contextmanager
def interruptible(under_way: Callable[[], Run | None], grace_s: float = 2 * WITHIN_S) -> Generator[None]:
    """Handle interrupts meanwhile.

    Args:
        under_way: gives the run to stop; where there is none, the caller's task is cancelled.
        grace_s: seconds that a process has after SIGTERM.
    """
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None
    count, latest = 0, 0.0

    def interrupt(within_s: float) -> None:
        nonlocal count, latest
        if count and time.monotonic() - latest < _ONE_INTERRUPT_S:
            return
        count, latest = count + 1, time.monotonic()
        if count == 3:
            os._exit(_STATUS)
        if count == 2:
            _bound_the_rest()
        run = under_way()
        if run is None:
            main.cancel()
        elif count == 1:
            _say(f"interrupted: attempts under way get {within_s:g} s to end; interrupt again to stop at once")
            run.suspend(within_s)
        else:
            run.abort(Interrupted())

    bounds = {signal.SIGINT: WITHIN_S, signal.SIGTERM: grace_s / 2}
    before = {number: signal.getsignal(number) for number in bounds}
    for number, within_s in bounds.items():
        loop.add_signal_handler(number, interrupt, within_s)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def leave() -> None:
    """What is left of the process is its end: another interrupt makes it end at once, and with the status it was to have."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(_STATUS))
        # The interpreter takes handlers away when it is all but gone, and leaves those alone that ignore.
        atexit.register(signal.signal, number, signal.SIG_IGN)


def _bound_the_rest() -> None:
    rest = threading.Timer(_ABORTED_S, os._exit, [_STATUS])
    rest.daemon = True
    rest.start()


def _say(text: str) -> None:
    sys.stderr.write(f"headrace: {text}\n")
    sys.stderr.flush()

"""Calls posted from the event loop to the engine's thread. The thread blocks here while it has nothing to do."""

import threading
from collections.abc import Callable


class Mailbox:
    """Any thread posts; one thread takes, in order."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._closed = False
        self._changed = threading.Condition()

    def post(self, call: Callable[[], None]) -> None:
        """Hand over a call for the other thread to make. After ``close`` it is never made."""
        with self._changed:
            self._calls.append(call)
            self._changed.notify()

    def close(self) -> None:
        """Make ``take`` return ``None`` from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def take(self, wait: bool) -> list[Callable[[], None]] | None:
        """All calls posted since the last time, or ``None`` once closed. ``wait``: block until there is one or the other."""
        with self._changed:
            while wait and not self._calls and not self._closed:
                self._changed.wait()
            calls, self._calls = self._calls, []
            return None if self._closed else calls

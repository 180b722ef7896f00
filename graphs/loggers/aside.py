"""Runs a logger on a thread of its own, behind a bounded queue: it can neither hold up a run nor end one."""

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from graphs.loggers.logger import Logger

_MOST = 1024
"""Rows and episodes that wait for a logger."""
CLOSING_S = 30.0
"""Time that a logger has at the end to bring everything to where it goes."""


class Aside:
    """One logger, opened and called on a thread.

    Args:
        name: of the logger, for warnings.
        make: opens it; called on the thread, since it may take seconds.
        on_failure: told, on the thread, what went wrong the first time something did.
        most: rows that may wait.

    Attributes:
        dropped: rows that found no room.
    """

    def __init__(self, name: str, make: Callable[[], Logger], on_failure: Callable[[str], None], most: int = _MOST) -> None:
        self._name, self._make, self._on_failure = name, make, on_failure
        self.dropped = 0
        self._failed = False
        self._queue: queue.Queue[Callable[[Logger], None] | None] = queue.Queue(most)
        self._thread = threading.Thread(target=self._work, name=f"logger {name}", daemon=True)
        self._thread.start()

    def row(self, row: Mapping[str, Any]) -> None:
        """Hand on a row; dropped where too many wait."""
        self._offer(lambda logger: logger.row(row))

    def episode(self, episode: Mapping[str, Any]) -> None:
        """Hand on an episode, the same way."""
        self._offer(lambda logger: logger.episode(episode))

    def close(self, summary: Mapping[str, Any], within_s: float = CLOSING_S) -> bool:
        """Let it finish; gives whether it did in time. What has not is left behind."""
        with contextlib.suppress(queue.Full):
            self._queue.put(lambda logger: logger.close(summary), timeout=within_s / 2)
            self._queue.put(None, timeout=within_s / 2)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _offer(self, call: Callable[[Logger], None]) -> None:
        try:
            self._queue.put_nowait(call)
        except queue.Full:
            self.dropped += 1

    def _work(self) -> None:
        logger = self._tried(self._make)
        while (call := self._queue.get()) is not None:
            if logger is not None:
                self._tried(partial(call, logger))

    def _tried(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # Whatever a package of others raises: it is told, and the run goes on.
            if not self._failed:
                self._failed = True
                self._on_failure(f"the logger {self._name} failed: {type(error).__name__}: {error} (said once)")
            return None

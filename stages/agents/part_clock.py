"""The parts of an episode: each is a slice in the trace and so many seconds in the record, by one clock and one name."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio

from flow import Context
from stages.records import Timings

PARTS = ("setup", "reset", "score", "close")
"""Those whose seconds are kept; turns keep their own."""


class PartClock:
    """Of one episode.

    Args:
        context: of the attempt.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str, **args: Any) -> Generator[None]:
        """Be in a part, also where it fails.

        Args:
            name: one of ``PARTS``.
            args: details for the trace.
        """
        began = anyio.current_time()
        try:
            with self._context.span(name, **args):
                yield
        finally:
            self._seconds[f"{name}_s"] = anyio.current_time() - began

    @property
    def timings(self) -> Timings:
        """What it came to so far."""
        return Timings(**self._seconds)

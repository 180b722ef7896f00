"""What is under way at a server, by name: how many requests, which sessions keep a cache, what an abort ends. No HTTP."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from graphs.serving.config import Limits
from graphs.serving.errors import Refused, overloaded


class Desk:
    """Of one server; on the event loop.

    Args:
        limits: of the server.
        release: frees the cache of a session.
    """

    def __init__(self, limits: Limits, release: Callable[[str], object]) -> None:
        self._limits, self._release = limits, release
        self._requests: dict[str, Sequence[str]] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()
        self._busy: Counter[str] = Counter()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.num_inside = 0
        """Requests that have come in and not gone out."""
        self.num_refused = 0
        """Requests for which there was no room."""

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Room for a request.

        Raises:
            Refused: there is none.
        """
        if self.num_inside >= self._limits.requests:
            self.num_refused += 1
            raise overloaded(self._limits.requests)
        self.num_inside += 1
        try:
            yield
        finally:
            self.num_inside -= 1

    @contextmanager
    def under_way(self, name: str, sessions: Sequence[str], kept: bool) -> Iterator[None]:
        """A request that is being sampled.

        Args:
            name: of the request.
            sessions: one a choice.
            kept: whether they stay for another turn; if not, their caches go at the end.

        Raises:
            Refused: another request of this name is under way.
        """
        if name in self._requests:
            raise Refused(
                409, f"expected a request of another name than those under way; got {name!r}, in request_id; "
                "wait until that has ended, or abort it", "conflict_error",
            )  # fmt: skip
        self._requests[name] = sessions
        self._quiet.clear()
        self._busy.update(sessions)
        try:
            yield
        finally:
            del self._requests[name]
            if not self._requests:
                self._quiet.set()
            for session in sessions:
                self._leave(session, kept)

    @property
    def num_requests(self) -> int:
        """Requests that are being sampled."""
        return len(self._requests)

    @property
    def num_sessions(self) -> int:
        """Sessions that are remembered or busy."""
        return len(self._idle) + len(self._busy)

    async def wait_quiet(self) -> None:
        """Wait until nothing is being sampled."""
        await self._quiet.wait()

    def sessions_of(self, names: Sequence[str] | None) -> list[tuple[str, Sequence[str]]]:
        """Requests under way and their sessions: those of these names, or all."""
        return [(name, sessions) for name, sessions in self._requests.items() if names is None or name in set(names)]

    def release(self, sessions: Sequence[str]) -> None:
        """Sessions will not come back. One that is busy ends with its last request; unknown ones are ignored."""
        for session in sessions:
            self._idle.pop(session, None)
            self._release(session)

    def _leave(self, session: str, kept: bool) -> None:
        self._busy[session] -= 1
        if self._busy[session] > 0:
            return
        del self._busy[session]
        if not kept:
            self._release(session)
            return
        self._idle[session] = None
        self._idle.move_to_end(session)
        while len(self._idle) > self._limits.sessions:
            self._release(self._idle.popitem(last=False)[0])

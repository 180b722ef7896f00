"""The parent's end of the socket to one process: frames in and out on the loop, which a large value never holds up for long."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from .frames import Assembler, Frame, framed

_PIECE_BYTES = 1 << 18
"""A large frame is written in pieces of this size, with a turn of the loop between them."""


class Link(asyncio.BufferedProtocol):
    """Calls ``received`` for each frame; ``lost`` is done once the other end is closed.

    Sending never waits: a process has one call at a time, so what waits here is bounded by one value.
    """

    def __init__(self, received: Callable[[Frame], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._received, self._assembler = received, Assembler()
        self._transport: asyncio.Transport | None = None
        self._queue: deque[memoryview] = deque()
        self._full = False

    def send(self, header: bytes, body: bytes = b"") -> None:
        """Send a frame after those before it. What is sent to an end that is closed is forgotten."""
        if self.lost.done():
            return
        self._queue.extend(framed(header, body))
        self._pump()

    def close(self) -> None:
        """Close this end, and forget what was not sent."""
        self._queue.clear()
        if self._transport is not None:
            self._transport.abort()

    def _pump(self) -> None:
        while self._queue and not self._full and self._transport is not None:
            chunk = self._queue.popleft()
            self._transport.write(chunk[:_PIECE_BYTES])
            if len(chunk) > _PIECE_BYTES:
                self._queue.appendleft(chunk[_PIECE_BYTES:])
                self._loop.call_soon(self._pump)
                return

    # --- what the transport calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # other loops have classes of their own
        self._transport.set_write_buffer_limits(high=0)  # it copies what it buffers, so the rest of a large frame waits here
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._queue.clear()
        if not self.lost.done():
            self.lost.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._assembler.space()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._assembler.filled(nbytes):
            self._received(frame)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._pump()

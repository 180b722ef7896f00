"""Frames on a stream of bytes: a header and a body, with their lengths before them. Pure; both ends of a link use it.

The body is apart from the header so that a large value is copied neither when it is framed nor when it is cut out.
"""

import struct
from typing import TypeAlias

Frame: TypeAlias = tuple[memoryview, memoryview]
"""Header and body."""

_LENGTHS = struct.Struct("<IQ")
_SMALL_BYTES = 1 << 16
"""Frames up to this size are cut out of one buffer that is used again; a larger one gets a buffer of its own."""


def framed(header: bytes, body: bytes) -> list[memoryview]:
    """Give the chunks of one frame, in order: one where it is small, since a write costs more than a copy."""
    lengths = _LENGTHS.pack(len(header), len(body))
    if len(body) <= _SMALL_BYTES:
        return [memoryview(lengths + header + body)]
    return [memoryview(lengths + header), memoryview(body)]


class Assembler:
    """Puts frames together from whatever pieces the stream gives."""

    def __init__(self) -> None:
        self._held = bytearray(_SMALL_BYTES)
        self._end = 0

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return memoryview(self._held)[self._end :]

    def filled(self, size_bytes: int) -> list[Frame]:
        """So many bytes were put there.

        Returns:
            The frames that are whole now.
        """
        self._end += size_bytes
        frames: list[Frame] = []
        start = 0
        while 0 < (size := self._size(start)) <= self._end - start:
            frames.append(self._cut(start, size))
            start += size
        self._make_room(start)
        return frames

    def _size(self, start: int) -> int:
        """Size of the frame that begins here, 0 while its lengths are not all there."""
        if self._end - start < _LENGTHS.size:
            return 0
        header, body = _LENGTHS.unpack_from(self._held, start)
        return _LENGTHS.size + header + body

    def _cut(self, start: int, size: int) -> Frame:
        view = memoryview(self._held)[start : start + size]
        if len(self._held) == _SMALL_BYTES:
            view = memoryview(bytes(view))  # the buffer is used again
        body = _LENGTHS.size + _LENGTHS.unpack_from(view)[0]
        return view[_LENGTHS.size : body], view[body:]

    def _make_room(self, start: int) -> None:
        """Move what is left to the front of a buffer that holds the frame it belongs to."""
        size = self._size(start)
        if not start and size <= len(self._held):
            return
        rest = bytes(memoryview(self._held)[start : self._end])
        if len(self._held) > _SMALL_BYTES or size > _SMALL_BYTES:
            self._held = bytearray(max(size, _SMALL_BYTES))
        self._held[: len(rest)] = rest
        self._end = len(rest)

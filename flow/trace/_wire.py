"""Slices in protobuf's wire format, written by hand: a message object for each costs five times what is in it.

Only what a series of slices needs (``Recorder.series``); everything else goes through Perfetto's message classes, and the
reader reads both through them, so a wrong byte here is a failed test there. Field numbers: ``trace_packet.proto`` and
``track_event.proto``.
"""

from collections.abc import Mapping, Sequence
from struct import Struct

from ._recorder import Argument

_FLOW = Struct("<BBQ").pack  # field 47, fixed 64 bits
_SMALL = [bytes([n]) for n in range(128)]
_PAIRS = [bytes([n & 127 | 128, n >> 7 | 128]) for n in range(1 << 14)]
"""Two bytes of a varint that goes on. A varint may be longer than it has to be, so times all take nine bytes."""


def varint(number: int) -> bytes:
    """The shortest varint of a number from 0 to 2**64 - 1."""
    if number < 128:
        return _SMALL[number]
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def time_of(at_ns: int) -> bytes:
    """The timestamp field of a packet; times below 2**63."""
    return b"\x40" + _PAIRS[at_ns & 16383] + _PAIRS[at_ns >> 14 & 16383] + _PAIRS[at_ns >> 28 & 16383] + _PAIRS[
        at_ns >> 42 & 16383
    ] + _SMALL[at_ns >> 56]  # fmt: skip


class SliceWire:
    """Slices on one track.

    Args:
        sequence: number of the packet sequence.
        flags: sequence flags of its packets.
        track: number of the track.
        arg_iids: interned numbers of the names of arguments.
    """

    def __init__(self, sequence: int, flags: int, track: int, arg_iids: Mapping[str, int]) -> None:
        rest = b"\x50" + varint(sequence) + b"\x68" + varint(flags)
        begin = b"\x48\x01\x58" + varint(track)
        end = b"\x48\x02\x58" + varint(track)
        self._rest, self._begin, self._arg_iids = rest, begin, arg_iids
        tail = rest + b"\x5a" + varint(len(end)) + end
        self._end = (b"\x0a" + varint(10 + len(tail)), tail)

    def end(self, time_field: bytes) -> bytes:
        """The packet that closes the slice opened last."""
        head, tail = self._end
        return head + time_field + tail

    def begin(self, time_field: bytes, name_iid: int, args: Mapping[str, Argument], flows: Sequence[int]) -> bytes:
        """The packet that opens a slice. Args: whole numbers from 0, and text; anything else is written as text.

        Raises:
            KeyError: the name of an argument is not interned yet.
        """
        event = self._begin + b"\x50" + varint(name_iid)
        for flow in flows:
            event += _FLOW(0xF9, 0x02, flow)
        for key, value in args.items():
            name = b"\x08" + varint(self._arg_iids[key])
            if value.__class__ is int and 0 <= value < 2**63:  # type: ignore[operator]
                note = name + b"\x20" + varint(value)  # type: ignore[arg-type]
            else:
                text = str(value).encode("utf-8", "backslashreplace")
                note = name + b"\x32" + varint(len(text)) + text
            event += b"\x22" + varint(len(note)) + note
        body = time_field + self._rest + b"\x5a" + varint(len(event)) + event
        return b"\x0a" + varint(len(body)) + body

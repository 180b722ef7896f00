"""Events in protobuf's wire format, written by hand: a message object for each costs five times what is in it.

Every event has the same layout, which the reader counts on where it is in a hurry: time, sequence, flags, then the event with
its type, its track and the rest. What an event refers to (declarations, interned names) goes through Perfetto's own message
classes. Field numbers: ``trace_packet.proto``, ``track_event.proto`` and ``debug_annotation.proto``.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct

from ._recorder import Argument

BEGIN, END, INSTANT, COUNT = 1, 2, 3, 4
"""``TrackEvent.Type``."""

_FLOW = Struct("<BBQ").pack  # field 47, fixed 64 bits
_VALUE = Struct("<BBd").pack  # field 44, a double
_DOUBLE = Struct("<Bd").pack
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
    return b"\x40" + _PAIRS[at_ns & 16383] + _PAIRS[at_ns >> 14 & 16383] + _late_bits(at_ns >> 28)


@lru_cache(16)
def _late_bits(number: int) -> bytes:
    """What times have in common for a quarter of a second."""
    return _PAIRS[number & 16383] + _PAIRS[number >> 14 & 16383] + _SMALL[number >> 28]


def text_of(value: object) -> bytes:
    """What protobuf accepts: lone surrogates, which have no UTF-8, become escapes. What gives no text is named by its type."""
    try:
        text = str(value)
    except Exception:  # of the user's class: no reason to lose the trace
        text = f"<{type(value).__name__} that gives no text>"
    return text.encode("utf-8", "backslashreplace")


def number_of(value: object) -> float:
    """What a counter can stand at: NaN where the value is no number or beyond all of them."""
    try:
        return float(value)  # type: ignore[arg-type]
    except Exception:
        return math.nan


class TrackWire:
    """Events on one track.

    Args:
        sequence: number of the packet sequence.
        flags: sequence flags of its packets.
        track: number of the track.
        arg_iids: interned numbers of the names of arguments; a name that is not in it is written out.
    """

    def __init__(self, sequence: int, flags: int, track: int, arg_iids: Mapping[str, int]) -> None:
        self._rest, self._arg_iids = b"\x50" + varint(sequence) + b"\x68" + varint(flags) + b"\x5a", arg_iids
        self._heads = [b"\x48" + _SMALL[kind] + b"\x58" + varint(track) for kind in range(5)]
        tail = self._rest + varint(len(self._heads[END])) + self._heads[END]
        self._bare_end = (b"\x0a" + varint(10 + len(tail)), tail)

    def end(self, time_field: bytes, args: Mapping[str, Argument] | None = None) -> bytes:
        """The packet that closes the slice opened last, with what became known of it meanwhile."""
        if args:
            return self._packet(time_field, self._heads[END] + self._notes(args))
        head, tail = self._bare_end
        return head + time_field + tail

    def named(
        self, kind: int, time_field: bytes, name: int | str, args: Mapping[str, Argument] | None, flows: Sequence[int]
    ) -> bytes:
        """The packet that opens a slice, or of something without a length.

        Args:
            kind: ``BEGIN`` or ``INSTANT``.
            time_field: from ``time_of``.
            name: interned number, or the name itself.
            args: details. What is neither text nor a number that fits is written as text.
            flows: numbers of arrows.

        Raises:
            struct.error: the number of an arrow is not from 0 to 2**64 - 1.
        """
        if name.__class__ is int:
            event = self._heads[kind] + b"\x50" + varint(name)  # type: ignore[arg-type]
        else:
            text = text_of(name)
            event = self._heads[kind] + b"\xba\x01" + varint(len(text)) + text
        for flow in flows:
            event += _FLOW(0xF9, 0x02, flow)
        return self._packet(time_field, event + self._notes(args) if args else event)

    def count(self, time_field: bytes, value: float) -> bytes:
        """The packet of a counter's value."""
        return self._packet(time_field, self._heads[COUNT] + _VALUE(0xE1, 0x02, value))

    def _packet(self, time_field: bytes, event: bytes) -> bytes:
        length = len(event)
        body = time_field + self._rest + (_SMALL[length] if length < 128 else varint(length)) + event
        length = len(body)
        return b"\x0a" + (_SMALL[length] if length < 128 else varint(length)) + body

    def _notes(self, args: Mapping[str, Argument]) -> bytes:
        notes = b""
        for key, value in args.items():
            number = self._arg_iids.get(key)
            name = b"\x08" + varint(number) if number is not None else _written_out(key)
            if isinstance(value, int) and value.__class__ is int and 0 <= value < 128:
                note = name + b"\x20" + _SMALL[value]
            else:
                note = name + _value(value)
            length = len(note)
            notes += b"\x22" + (_SMALL[length] if length < 128 else varint(length)) + note
        return notes


def _written_out(name: str) -> bytes:
    text = text_of(name)
    return b"\x52" + varint(len(text)) + text


def _value(value: Argument) -> bytes:
    if isinstance(value, str) and value.isascii() and len(value) < 128:
        return b"\x32" + _SMALL[len(value)] + value.encode()
    if value.__class__ is int and 0 <= value < 2**63:  # type: ignore[operator]
        return b"\x20" + varint(value)  # type: ignore[arg-type]
    if isinstance(value, bool):
        return b"\x10" + _SMALL[value]
    if isinstance(value, float):
        return _DOUBLE(0x29, value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return b"\x20" + varint(value % 2**64)
    text = text_of(value)
    return b"\x32" + varint(len(text)) + text

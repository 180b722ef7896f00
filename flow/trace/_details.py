"""Details and arrows of one event, from its bytes. Everything else in it is passed over."""

from collections.abc import Mapping
from struct import Struct

from ._reader import Details
from ._recorder import Argument

_FLOW, _DOUBLE = Struct("<Q").unpack_from, Struct("<d").unpack_from
_ARGS_FIELD, _FLOWS_FIELD = 4, 47
_NAME_IID, _BOOL, _INT, _FLOAT, _TEXT, _NAME = 1, 2, 4, 5, 6, 10
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_ARG = _ARGS_FIELD << 3 | _BYTES
_NUMBERED, _WHOLE, _WORDS = _NAME_IID << 3, _INT << 3, _TEXT << 3 | _BYTES
"""Beginnings of the parts that an argument is made of as ``PerfettoWriter`` has it: a numbered name, then one value."""


def details_of(content: bytes, at: int, stop: int, arg_names: Mapping[int, str]) -> Details:
    """Args and flows of the event whose fields lie from ``at`` to ``stop``.

    Args:
        content: a file.
        at: where to begin, at a field.
        stop: the end of the event.
        arg_names: names of arguments by interned number.
    """
    args: dict[str, Argument] = {}
    flows: list[int] = []
    while at < stop:
        if content[at] == _ARG and content[at + 1] < 128:  # nearly all that there is: spares two calls
            end = at + 2 + content[at + 1]
            name, value = _argument(content, at + 2, end, arg_names)
            args[name], at = value, end
            continue
        tag, at = varint_at(content, at)
        field, kind = tag >> 3, tag & 7
        if kind == _FIXED64:
            if field == _FLOWS_FIELD:
                flows.append(_FLOW(content, at)[0])
            at += 8
            continue
        number, at = varint_at(content, at)
        if kind == _BYTES:
            if field == _ARGS_FIELD:
                name, value = _argument(content, at, at + number, arg_names)
                args[name] = value
            at += number
    return args, tuple(flows)


def varint_at(content: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends.

    Raises:
        IndexError: the content ends before it does.
    """
    byte = content[at]
    if byte < 128:
        return byte, at + 1
    number, shift = 0, 0
    while byte >= 128:
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        byte = content[at]
    return number | byte << shift, at + 1


def _argument(content: bytes, at: int, stop: int, arg_names: Mapping[int, str]) -> tuple[str, Argument]:
    name, value = "", ""
    if content[at] == _NUMBERED and content[at + 1] < 128:
        name, kind, at = arg_names[content[at + 1]], content[at + 2], at + 2
        if kind == _WHOLE and at + 2 == stop:
            return name, content[at + 1]
        if kind == _WORDS and at + 2 + content[at + 1] == stop:
            return name, content[at + 2 : stop].decode()
    while at < stop:
        tag, at = varint_at(content, at)
        field, kind = tag >> 3, tag & 7
        if kind == _FIXED64:
            if field == _FLOAT:
                value = _DOUBLE(content, at)[0]
            at += 8
            continue
        number, at = varint_at(content, at)
        if kind == _BYTES:
            text = content[at : at + number].decode()
            at += number
            name, value = (text, value) if field == _NAME else (name, text if field == _TEXT else value)
        elif field == _NAME_IID:
            name = arg_names[number]
        elif field == _BOOL:
            value = bool(number)
        elif field == _INT:
            value = number if number < 2**63 else number - 2**64
    return name, value

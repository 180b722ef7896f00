"""Values between processes, as msgpack with the types that the stage declares, and what stages may return.

A value must come out as it went in, or be refused: a placement changes nothing that a stage can see.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional, cast, get_origin

import msgspec

from .._errors import NotPortable
from .._item import Failed, Filtered, Many
from .._types import type_name, untyped
from .messages import Done

_ENCODE = msgspec.msgpack.Encoder().encode


class Codec:
    """Writes and reads the values of one port.

    Args:
        node: name of the node.
        port: name of the port: ``in``, ``out`` or ``reads``.
        hint: type of its values.
        where: the user's own ``file:line``, or empty.

    Raises:
        NotPortable: the port is untyped, or msgpack cannot carry the type.
    """

    def __init__(self, node: str, port: str, hint: Any, where: str = "") -> None:
        self._node, self._port, self._hint, self._where = node, port, hint, where
        if untyped(hint):
            raise self._refusal("a declared type", type_name(hint), "annotate the stage")
        try:
            self._decode = msgspec.msgpack.Decoder(hint).decode
            self._decode_many = msgspec.msgpack.Decoder(list.__class_getitem__(hint)).decode
        except (TypeError, NameError) as error:
            raise self._refusal("a type that msgspec can carry", f"{type_name(hint)}: {error}", _REMEDY) from error
        self._exact = _record_class(hint)

    def encode(self, value: Any) -> bytes:
        """Write a value.

        Raises:
            NotPortable: it cannot be written, or would come out as another class.
        """
        self._check(value)
        return self._written(value)

    def encode_many(self, values: Sequence[Any]) -> bytes:
        """Write several values as one list."""
        for value in values:
            self._check(value)
        return self._written(list(values))

    def decode(self, body: memoryview) -> Any:
        """Read a value.

        Raises:
            NotPortable: it is not of the declared type.
        """
        return self._read(self._decode, body)

    def decode_many(self, body: memoryview) -> list[Any]:
        """Read a list of values."""
        return self._read(self._decode_many, body)

    def _check(self, value: Any) -> None:
        # The declared class is what is read on the other side, so the fields of a subclass would be lost without a word.
        if self._exact is not None and value.__class__ is not self._exact:
            remedy = "declare the class itself, or a tagged union"
            raise self._refusal(f"exactly {self._exact.__name__}", type(value).__name__, remedy)

    def _written(self, value: Any) -> bytes:
        try:
            return _ENCODE(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._refusal(f"a {type_name(self._hint)} that msgpack can carry", str(error), _REMEDY) from error

    def _read(self, decode: Any, body: memoryview) -> Any:
        try:
            return decode(body)
        except msgspec.DecodeError as error:
            raise self._refusal(type_name(self._hint), str(error), "make the annotation say what is given") from error

    def _refusal(self, expected: str, got: str, remedy: str) -> NotPortable:
        return NotPortable(self._node, self._port, expected, got, self._where, remedy)


_REMEDY = "make it of structs, dataclasses, containers, numbers, strings and bytes"


def _record_class(hint: Any) -> type[Any] | None:
    """The class of a port that takes records of one class; ``None`` for others."""
    kind: Any = get_origin(hint) or hint
    if not isinstance(kind, type):
        return None
    found = cast("type[Any]", kind)
    return found if issubclass(found, msgspec.Struct) or dataclasses.is_dataclass(found) else None


def optional(hint: Any) -> Any:
    """The type of the values of a cell, which holds ``None`` before it holds any."""
    return hint if untyped(hint) else Optional[hint]  # noqa: UP045 - not every hint knows the bar


def pack_outcome(codec: Codec, number: int, outcome: Any) -> tuple[Done, bytes]:
    """Write what a stage returned."""
    if isinstance(outcome, Many):
        return Done(number, "many"), codec.encode_many(cast("Many[Any]", outcome).values)
    if isinstance(outcome, Failed):
        failed = cast("Failed[Any]", outcome)
        return Done(number, "failed", failed.reason, failed.detail), codec.encode(failed.value)
    if isinstance(outcome, Filtered):
        return Done(number, "filtered", outcome.reason, outcome.detail), b""
    return Done(number), codec.encode(outcome)


def unpack_outcome(codec: Codec, done: Done, body: memoryview) -> Any:
    """Read what a stage returned."""
    if done.outcome == "plain":
        return codec.decode(body)
    if done.outcome == "many":
        return Many(codec.decode_many(body))
    if done.outcome == "failed":
        return Failed(codec.decode(body), done.reason, done.detail)
    return Filtered(done.reason, done.detail)

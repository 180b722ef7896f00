"""Values as msgpack with their declared types: what goes to a process, into a commit or into a journal comes out as it went in.

A value that would not is refused. Who refuses says so in words of its own.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast, get_origin

import msgspec

from ._types import type_name, untyped

Refuse = Callable[[str, str, str], Exception]
"""Makes the error of (expected, got, what to do)."""


@dataclasses.dataclass(frozen=True)
class Hooks:
    """How values are written that msgpack has no type for, such as arrays; see msgspec on extending.

    Attributes:
        write: gives what stands for an object: something msgspec knows, or an ``Ext``. ``NotImplementedError`` for others.
        read: gives the object of a class from what stood for it.
        read_ext: gives what an ``Ext`` stands for, from its code and bytes.
    """

    write: Callable[[Any], Any] | None = None
    read: Callable[[type, Any], Any] | None = None
    read_ext: Callable[[int, memoryview], Any] | None = None


PLAIN = Hooks()


class Codec:
    """Writes and reads values of one type.

    Args:
        hint: the type.
        refuse: makes the error of a value, or a type, that cannot be carried.
        hooks: for what msgpack has no type for.

    Raises:
        Exception: what ``refuse`` makes: the type says nothing, or msgspec cannot carry it.
    """

    def __init__(self, hint: Any, refuse: Refuse, hooks: Hooks = PLAIN) -> None:
        self._hint, self._refuse = hint, refuse
        if untyped(hint):
            raise refuse("a declared type", type_name(hint), "annotate the stage")
        try:
            self._decode = _decoder(hint, hooks)
            self._decode_many = _decoder(list.__class_getitem__(hint), hooks)
        except (TypeError, NameError) as error:
            raise refuse("a type that msgspec can carry", f"{type_name(hint)}: {error}", _REMEDY) from error
        self._encode = msgspec.msgpack.Encoder(enc_hook=hooks.write).encode
        self._exact = _record_class(hint)

    def encode(self, value: Any) -> bytes:
        """Write a value.

        Raises:
            Exception: what ``refuse`` makes: it cannot be written, or would come out as another class.
        """
        self._check(value)
        return self._written(value)

    def encode_many(self, values: Sequence[Any]) -> bytes:
        """Write several values as one list."""
        for value in values:
            self._check(value)
        return self._written(list(values))

    def decode(self, body: bytes | memoryview) -> Any:
        """Read a value.

        Raises:
            Exception: what ``refuse`` makes: it is not of the type.
        """
        return self._read(self._decode, body)

    def decode_many(self, body: bytes | memoryview) -> list[Any]:
        """Read a list of values."""
        return self._read(self._decode_many, body)

    def _check(self, value: Any) -> None:
        # The declared class is what is read on the other side, so the fields of a subclass would be lost without a word.
        if self._exact is not None and value.__class__ is not self._exact:
            remedy = "declare the class itself, or a tagged union"
            raise self._refuse(f"exactly {self._exact.__name__}", type(value).__name__, remedy)

    def _written(self, value: Any) -> bytes:
        try:
            return self._encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
            raise self._refuse(f"a {type_name(self._hint)} that msgpack can carry", str(error), _REMEDY) from error

    def _read(self, decode: Any, body: bytes | memoryview) -> Any:
        try:
            return decode(body)
        except msgspec.DecodeError as error:
            raise self._refuse(type_name(self._hint), str(error), "make the annotation say what is given") from error


_REMEDY = "make it of structs, dataclasses, containers, numbers, strings and bytes"


def _decoder(hint: Any, hooks: Hooks) -> Callable[[bytes | memoryview], Any]:
    if hooks.read_ext is None:
        return msgspec.msgpack.Decoder(hint, dec_hook=hooks.read).decode
    return msgspec.msgpack.Decoder(hint, dec_hook=hooks.read, ext_hook=hooks.read_ext).decode


def _record_class(hint: Any) -> type[Any] | None:
    """The class of values that are records of one class; ``None`` for others."""
    kind: Any = get_origin(hint) or hint
    if not isinstance(kind, type):
        return None
    found = cast("type[Any]", kind)
    return found if issubclass(found, msgspec.Struct) or dataclasses.is_dataclass(found) else None

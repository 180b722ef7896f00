"""What a place in a set is good for: this set, in this order. Sources keep it beside the place, and go on nowhere else.

A set is told by all that is in it, so that one of another length, or with a row exchanged, is refused and never passed over in
part. Not for sources whose values are made: those tell what they can, see each.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from stages.arrays import ARRAYS

_ENCODE = msgspec.msgpack.Encoder(enc_hook=ARRAYS.write, order="deterministic").encode
_DECODE = msgspec.msgpack.Decoder(ext_hook=ARRAYS.read_ext).decode


class SetId(msgspec.Struct, frozen=True):
    """A set and an order of it.

    Attributes:
        size: values in it.
        fingerprint: see ``fingerprint_of``.
        order: in words, such as "by seed 3".
    """

    size: int
    fingerprint: str
    order: str


def fingerprint_of(values: Iterable[Any]) -> str:
    """What tells a set: a hash of its values, in order.

    Raises:
        TypeError: a value cannot be saved as it is; names it.
    """
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        digest.update(_bytes_of(value))
    return digest.hexdigest()


def check_same_set(saved: SetId, now: SetId, where: str) -> None:
    """Refuse to go on in another set, or in another order of it.

    Args:
        saved: where the place is from.
        now: where one is to go on.
        where: the method that was asked, for the error.

    Raises:
        ValueError: they differ.
    """
    if saved != now:
        raise ValueError(
            f"expected {_told(saved)}, where its place is; got {_told(now)}, in {where}; resume with the set the run was "
            "started with, or begin a new run with this one"
        )


def plain(value: Any) -> Any:
    """A value as it comes back from where it was saved: a date is text, a tuple a list.

    Raises:
        TypeError: it cannot be saved.
    """
    return _DECODE(_ENCODE(value))


def _bytes_of(value: Any) -> bytes:
    name = getattr(value, "id", type(value).__name__)
    try:
        body = _ENCODE(value)
    except (TypeError, NotImplementedError, OverflowError) as error:
        raise TypeError(f"'{name}', which cannot be saved: {error}") from error
    extra = getattr(value, "extra", None)
    if extra and (changed := _changed(extra, plain(extra), "extra")):
        raise TypeError(f"'{name}', which would not come back as it is: {changed}")
    return body


def _changed(value: Any, again: Any, where: str) -> str | None:
    """The first part of a value that would be another one once saved; ``None`` for none."""
    if type(value) is not type(again):
        return f"{where} is a {type(value).__name__} and would be a {type(again).__name__}"
    if isinstance(value, dict):
        pairs = ((value[key], again.get(key), f"{where}[{key!r}]") for key in value)
    elif isinstance(value, list):
        pairs = ((one, other, f"{where}[{index}]") for index, (one, other) in enumerate(zip(value, again, strict=True)))
    else:
        same = np.array_equal(value, again, equal_nan=True) if isinstance(value, np.ndarray) else value == again
        return None if same or value != value else f"{where} would not be the same"
    return next((found for pair in pairs if (found := _changed(*pair))), None)


def _told(one: SetId) -> str:
    return f"the set of {one.size} with the fingerprint {one.fingerprint} {one.order}"

"""Whether two values are the same, looked at from inside.

``==`` will not do: arrays answer with arrays, records may compare by identity, and a number that is none (NaN) differs from
itself.
"""

import dataclasses
import pickle
from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

import msgspec


def same(left: Any, right: Any) -> bool:
    """Compare two values part by part. Of what has no parts that can be seen, by ``==``, and failing that by its pickle."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, float | complex):
        return left == right or (left != left and right != right)  # NaN
    if isinstance(left, str | bytes | int):
        return left == right
    if isinstance(left, Mapping):
        return _same_mappings(cast("Mapping[Any, Any]", left), cast("Mapping[Any, Any]", right))
    if isinstance(left, Sequence) and not isinstance(left, range):
        parts = list(cast("Sequence[Any]", left)), list(cast("Sequence[Any]", right))
        return len(parts[0]) == len(parts[1]) and all(map(same, *parts))
    fields = _fields(left)
    if fields is not None:
        return _same_mappings(fields, cast("Mapping[str, Any]", _fields(right)))
    return _same_opaque(left, right)


def _same_mappings(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> bool:
    return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)


def _fields(value: Any) -> Mapping[str, Any] | None:
    """The parts of a record or a plain object, by name; ``None`` where there are none to see."""
    if isinstance(value, BaseException):
        return {"args": value.args}
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if type(value).__eq__ is object.__eq__:
        return getattr(value, "__dict__", None)
    return None


def _same_opaque(left: Any, right: Any) -> bool:
    if isinstance(left, Set):
        return left == right
    try:
        return bool(left == right)
    except (TypeError, ValueError):  # as an array of several elements has no one answer
        pass
    return pickle.dumps(left) == pickle.dumps(right)

"""What ``build`` proves before it compares anything: that each setting is of a type that a setting of its name may have (B5).

A setting that is not is told once and then stands as if it had not been given, so that the rest of the graph can be judged.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from ._change import FIELDS
from ._errors import Fault
from ._limits import Capacity, Collect, Freshness, Inline, Processes, Threads
from ._policy import Drop, Emit, Fail, Retry, Shrink
from ._spec import Spec

T = TypeVar("T")


@dataclass(frozen=True)
class _Kind:
    """What a setting may be: a test, the same in words, and what stands in for a value that is wrong."""

    fits: Callable[[Any], bool]
    expected: str
    instead: Any = None
    remedies: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # by the text of a value that is known

    def or_none(self) -> "_Kind":
        def fits(value: Any) -> bool:
            return value is None or self.fits(value)

        return replace(self, fits=fits, expected=f"{self.expected}, or None", instead=None)


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and value is not True and value is not False


def _real(value: Any) -> bool:
    return isinstance(value, Real) and value is not True and value is not False and value == value  # not a number is none


def _pair(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(cast("tuple[Any, ...]", value)) == 2
        and all(map(_whole, cast("tuple[Any, ...]", value)))
    )


def _counts(value: Any) -> bool:
    items = cast("Mapping[Any, Any]", value).items() if isinstance(value, Mapping) else [(None, None)]
    return all(isinstance(name, str) and _whole(count) for name, count in items)


def _errors(value: Any) -> bool:
    classes = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (None,)
    return all(isinstance(each, type) and issubclass(each, BaseException) for each in classes)


def _one_of(*allowed: str) -> _Kind:
    return _Kind(lambda value: value in allowed, " or ".join(map(repr, allowed)), allowed[0])


def _written(kind: type) -> str:
    """How an object of a class of settings is made."""
    bare = all(each.default is not dataclasses.MISSING for each in dataclasses.fields(kind))
    return f"{kind.__name__}()" if bare else f"{kind.__name__}(...)"


def _record(expected: str, instead: Any, *classes: type, remedies: Mapping[str, str] | None = None) -> _Kind:
    """An object of one of these classes. A class in place of its object, and its name, are known mistakes."""
    known = {str(each): f"pass an object: {_written(each)}" for each in classes}
    known |= {each.__name__.lower(): f"pass {_written(each)}" for each in classes}
    return _Kind(lambda value: isinstance(value, classes), expected, instead, {**known, **(remedies or {})})


_WHOLE = _Kind(_whole, "a whole number", 1)
_REAL = _Kind(_real, "a number", 1.0)
_CALLED = _Kind(callable, "a function", id)
_TRUTH = _Kind(lambda value: isinstance(value, bool), "True or False", False)
_WINDOW = {"most": _WHOLE, "of": replace(_WHOLE, instead=100)}
_UNITS = _Kind(lambda value: _whole(value) or _pair(value), "units as a whole number, or (least, most)", 1)
_CELL = _Kind(lambda value: isinstance(value, str), "a cell, as graph.latest gives it")
_COUNTS = _Kind(_counts, "whole numbers by name", {})
_GROUPS = _record(
    "'drop', Shrink(...) or Retry(...)", "drop", Shrink, Retry,
    remedies={"Drop(most=50, of=100)": "pass 'drop', which drops the group; its limit is budget="},
)  # fmt: skip


def _loses(value: Any) -> bool:
    return value == "drop" or _GROUPS.fits(value)


_NODE: Mapping[str, _Kind] = {
    "workers": _WHOLE,
    "order": _one_of("any", "input"),
    "needs": _COUNTS,
    "reads": _CELL.or_none(),
    "deadline_s": replace(_REAL, expected="seconds as a number").or_none(),
    "on_error": _record("Fail(), Drop(), Emit(...) or Retry(...)", Fail(), Fail, Drop, Emit, Retry),
    "placement": _record("Inline(), Threads() or Processes()", Inline(), Inline, Threads, Processes),
    "size": _WHOLE,
    "missing": replace(_GROUPS, fits=_loses),
    "budget": _Kind(_pair, "(most, of), two whole numbers", (50, 100)).or_none(),
    "collect": replace(_record("Collect(...)", None, Collect).or_none(), instead=Collect(1)),
    "weights": _COUNTS,
    "patience": _WHOLE.or_none(),
}
"""By the field of a node."""

_INSIDE: Mapping[type, Mapping[str, _Kind]] = {
    Retry: {"times": _WHOLE, "backoff_s": replace(_REAL, expected="seconds as a number"),
            "on": _Kind(_errors, "a tuple of exception classes", (Exception,))},
    Drop: _WINDOW,
    Emit: {"make": _CALLED, **_WINDOW},
    Shrink: {"min_members": _WHOLE},
    Collect: {"items": _WHOLE, "steps": _WHOLE.or_none(), "end": _one_of("drop", "short")},
    Freshness: {"max_lag": _WHOLE, "depth": _WHOLE.or_none(), "late": _one_of("wait", "drop")},
    Capacity: {"items": _WHOLE.or_none(), "cost": _REAL.or_none(), "measure": _CALLED.or_none()},
}  # fmt: skip
"""By the class of a setting, for each of its fields."""

_SETTINGS = {field: setting for setting, field in FIELDS.items()}


def mended(spec: Spec) -> tuple[Spec, list[Fault]]:
    """Give a graph in which every setting has a type that can be compared, and a fault for each that had not."""
    faults: list[Fault] = []
    nodes = {
        name: _mended(node, _NODE, f"{spec.name}.{name}", node.where, faults) for name, node in spec.nodes.items()
    }  # fmt: skip
    bound = {"capacity": _record("a bound: Items(...) or Cost(...)", Capacity(), Capacity), "durable": _TRUTH}
    edges = tuple(_mended(edge, bound, f"{spec.name}.{edge.name}", edge.where, faults) for edge in spec.edges)
    fresh = {"freshness": _record("Freshness(...)", None, Freshness).or_none()}
    feedback = tuple(
        _mended(each, fresh, f"{spec.name}.{each.source}->{each.cell}", each.where, faults) for each in spec.feedback
    )
    pools = _values(spec.pools, _UNITS, f"{spec.name}.pools", spec.where, faults)
    rates = _values(
        spec.rates, replace(_REAL, expected="starts per second, as a number"), f"{spec.name}.rates", spec.where, faults
    )
    return (replace(spec, nodes=nodes, edges=edges, feedback=feedback, pools=pools, rates=rates) if faults else spec), faults


def _mended(record: T, kinds: Mapping[str, _Kind], path: str, where: str, faults: list[Fault]) -> T:
    """Give a record whose fields are of these kinds, down to the records in its fields."""
    changes: dict[str, Any] = {}
    for name, kind in kinds.items():
        value, inner = getattr(record, name), f"{path}.{_SETTINGS.get(name, name)}"
        if kind.fits(value):
            inside = _mended(value, _INSIDE.get(cast("type[Any]", type(value)), {}), inner, where, faults)
        else:
            faults.append(_fault(kind, inner, value, where))
            inside = kind.instead
        if inside is not value:
            changes[name] = inside
    then: Any = getattr(record, "then", None)
    if isinstance(then, Drop | Emit):
        changes["then"] = _mended(then, _INSIDE[type(then)], f"{path}.then", where, faults)
    return replace(cast("Any", record), **changes) if changes else record


def _values(given: Mapping[str, T], kind: _Kind, path: str, where: str, faults: list[Fault]) -> Mapping[str, T]:
    """Give a mapping whose values are of this kind."""
    if not isinstance(cast("Any", given), Mapping):
        faults.append(_fault(replace(kind, expected=f"{kind.expected}, by name"), path, given, where))
        return {}
    wrong = [name for name, value in given.items() if not kind.fits(value)]
    faults += [_fault(kind, f"{path}.{name}", given[name], where) for name in wrong]
    return {name: kind.instead if name in wrong else value for name, value in given.items()}


def _fault(kind: _Kind, path: str, value: Any, where: str) -> Fault:
    got = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
    known = kind.remedies.get(str(value), f"pass {kind.expected}")
    return Fault("B5", path, kind.expected, got, where, known)

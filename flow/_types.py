"""What a stage takes and gives, read from its hints, and whether one type may flow into another.

Covers what stages are annotated with: classes, unions, ``Any``, literals and generics taken as covariant, which is sound
because items are frozen. A hint that says nothing (``Any``, a type variable, none at all) is an untyped port.
"""

import types
import typing
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from ._item import Failed, Filtered, Many

UNTYPED: Any = Any
_UNIONS = (Union, types.UnionType)
_PROMOTED = ((int, float), (int, complex), (float, complex))
"""Classes that type checkers let pass for another without being a subclass."""


def hints_of(function: Any) -> tuple[Any, Any]:
    """Read the type of the first parameter and of the result, ``UNTYPED`` where there is none."""
    target, hints = _called(function), _hints(function)
    code = getattr(target, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code else ()
    if names and (names[0] == "self" or isinstance(target, types.MethodType)):
        names = names[1:]
    first = hints.get(names[0], UNTYPED) if names else UNTYPED
    return first, _result(hints.get("return", UNTYPED))


def _called(function: Any) -> Any:
    """What runs when this is called: a function itself, or the method of an object, unbound."""
    named = isinstance(function, types.FunctionType | types.MethodType)
    return function if named else getattr(cast("type[Any]", type(function)), "__call__", None)  # noqa: B004 - the method, unbound


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_called(function), include_extras=False)
    except (NameError, TypeError):
        return {}


def drawn_by(source: Any) -> Any:
    """Type of the items of a source: the result of ``draw``, or the argument of an iterable's generic hint."""
    if hasattr(source, "draw"):
        return hints_of(source.draw)[1]
    if isinstance(source, range):
        return int
    if not isinstance(source, list | tuple):
        return UNTYPED
    found: list[Any] = []
    for value in cast("Sequence[Any]", source):
        if type(value) not in found:
            found.append(type(value))
    return found[0] if len(found) == 1 else UNTYPED


def _result(hint: Any) -> Any:
    """Strip what the engine takes off: awaitables, ``Many``, ``Failed``, ``Filtered``."""
    if get_origin(hint) in (Coroutine, Awaitable):
        return _result(get_args(hint)[-1])
    members = get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
    kept: list[Any] = []
    for member in members:
        if member is Filtered:
            continue
        kept.append(get_args(member)[0] if get_origin(member) in (Many, Failed) else member)
    return united(kept) if kept else UNTYPED


def united(hints: Sequence[Any]) -> Any:
    """Type of a value that has one of these types; ``UNTYPED`` where one of several says nothing."""
    kept: list[Any] = []
    for hint in hints:
        if hint not in kept:
            kept.append(hint)
    if len(kept) > 1 and any(untyped(hint) for hint in kept):
        return UNTYPED
    return kept[0] if len(kept) == 1 else Union[tuple(kept)]  # noqa: UP007 - made at run time


def may_give_many(function: Any) -> bool:
    """Whether a function may give more than one output for an input, as far as its hints tell."""
    hint = _hints(function).get("return", UNTYPED)
    while get_origin(hint) in (Coroutine, Awaitable):
        hint = get_args(hint)[-1]
    members = get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
    return any(untyped(member) or Many in (member, get_origin(member)) for member in members)


def literals(hint: Any) -> list[Any]:
    """The values a literal hint allows; none where it is another."""
    members = get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
    plain = [_plain(member) for member in members]
    return [value for member in plain for value in get_args(member)] if all(get_origin(m) is Literal for m in plain) else []


def assignable(given: Any, wanted: Any) -> bool:
    """Whether every value of one type is a value of the other. Untyped ports fit everything."""
    if untyped(given) or untyped(wanted) or given == wanted:
        return True
    given, wanted = _plain(given), _plain(wanted)
    if get_origin(given) in _UNIONS:
        return all(assignable(member, wanted) for member in get_args(given))
    if get_origin(given) is Literal and len(get_args(given)) > 1:
        return all(assignable(Literal[value], wanted) for value in get_args(given))
    if get_origin(wanted) in _UNIONS:
        return any(assignable(given, member) for member in get_args(wanted))
    if get_origin(given) is Literal:
        value = get_args(given)[0]
        return value in get_args(wanted) if get_origin(wanted) is Literal else assignable(type(value), wanted)
    if hasattr(given, "__supertype__"):  # a NewType is its base; the base is not it
        return assignable(given.__supertype__, wanted)
    return _assignable_class(given, wanted)


def _assignable_class(given: Any, wanted: Any) -> bool:
    given_class, wanted_class = get_origin(given) or given, get_origin(wanted) or wanted
    if not (isinstance(given_class, type) and isinstance(wanted_class, type)):
        return False
    try:
        if not issubclass(given_class, wanted_class):
            return (given_class, wanted_class) in _PROMOTED
    except TypeError:  # a protocol that cannot be checked at run time
        return True
    given_arguments, wanted_arguments = get_args(given), get_args(wanted)
    if given_class is tuple and Ellipsis in wanted_arguments + given_arguments:
        return _assignable_tuple(given_arguments, wanted_arguments)
    if not given_arguments or not wanted_arguments:
        return True
    if len(given_arguments) != len(wanted_arguments):
        # Which parameter of a subclass is which of its base cannot be told here: the type checker's matter, not ours.
        return given_class is not wanted_class
    return all(assignable(g, w) for g, w in zip(given_arguments, wanted_arguments, strict=True))


def untyped(hint: Any) -> bool:
    """Whether a hint says nothing."""
    return hint is Any or hint is None or isinstance(hint, TypeVar) or hint is object


def type_name(hint: Any) -> str:
    """Write a type the way a user would."""
    if untyped(hint):
        return "anything (untyped)"
    if get_origin(hint) in _UNIONS:
        return " | ".join(type_name(member) for member in get_args(hint))
    arguments = get_args(hint)
    name = getattr(get_origin(hint) or hint, "__name__", str(hint))
    inner = ", ".join("..." if a is Ellipsis else type_name(a) for a in arguments)
    return f"{name}[{inner}]" if arguments else name


def _assignable_tuple(given: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Tuples of which at least one is of any length."""
    return Ellipsis in wanted and all(assignable(member, wanted[0]) for member in given if member is not Ellipsis)


def _plain(hint: Any) -> Any:
    return _plain(get_args(hint)[0]) if get_origin(hint) is Annotated else hint

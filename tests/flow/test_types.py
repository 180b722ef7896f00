"""Reading types from hints, and whether one may flow into another. Each answer is what a type checker says."""

import functools
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NewType, Protocol, TypeVar

import pytest

from flow import Context, Failed, Filtered, Gathered, Many
from flow._types import assignable, drawn_by, hints_of, literals, may_give_many, type_name, united, untyped

T = TypeVar("T")
UserId = NewType("UserId", int)


@dataclass(frozen=True)
class Box(Generic[T]):
    value: T


@dataclass(frozen=True)
class RedBox(Box[T]):
    """A box that is red."""


class Named(Protocol):
    name: str


class Stage:
    async def __call__(self, value: int, context: Context) -> str:
        return ""

    def add(self, value: bytes, context: Context) -> None:
        """Takes all."""


async def many(value: int, context: Context) -> Many[str]:
    return Many([])


def mixed(value: list[int], context: Context) -> str | Filtered | Failed[str]:
    return ""


def awaiting(value: int, context: Context) -> Awaitable[bytes]:
    raise NotImplementedError


def bare(value, context):
    return value


def wrongly_named(value: "NoSuchThing", context: Context) -> int:  # noqa: F821
    return 1


@pytest.mark.parametrize(
    ("work", "takes", "gives"),
    [
        (Stage(), int, str),
        (Stage().add, bytes, type(None)),
        (many, int, str),
        (mixed, list[int], str),
        (awaiting, int, bytes),
        (bare, Any, Any),
        (lambda value, context: value, Any, Any),
        (wrongly_named, Any, Any),
        (functools.partial(mixed, context=None), Any, Any),
    ],
)
def test_hints_give_what_a_stage_takes_and_gives(work, takes, gives):
    assert hints_of(work) == (takes, gives)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (bool, int),
        (int, float),
        (int, int | str),
        (int | bool, int),
        (list[bool], Sequence[int]),
        (list, list[int]),
        (list[int], Any),
        (Any, list[int]),
        (T, int),
        (Literal[1, "a"], int | str),
        (Literal["a"], Literal["a", "b"]),
        (Annotated[int, "metres"], int),
        (UserId, int),
        (Gathered[bool], Gathered[int]),
        (RedBox[int], Box[int]),
        (tuple[int, bool], tuple[int, ...]),
        (tuple[int, ...], tuple[float, ...]),
        (dict[str, int], Mapping[str, float]),
        (dict[str, int], Iterable[str]),
        (int, Named),  # cannot be checked at run time: the type checker's matter
        (int | None, int | None),
    ],
)
def test_a_value_may_flow_into_a_wider_type(given, wanted):
    assert assignable(given, wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (int, bool),
        (float, int),
        (int | str, int),
        (int | None, int),
        (list[str], list[int]),
        (list[int], int),
        (Literal["a", "c"], Literal["a", "b"]),
        (str, Literal["a"]),
        (int, UserId),
        (int, Gathered[int]),
        (Gathered[str], Gathered[int]),
        (Box[int], RedBox[int]),
        (tuple[int, str], tuple[int, ...]),
        (tuple[int, ...], tuple[int, int]),
        (tuple[int], tuple[int, int]),
        (dict[str, int], Mapping[str, str]),
    ],
)
def test_a_value_may_not_flow_into_another_type(given, wanted):
    assert not assignable(given, wanted)


class Draws:
    def draw(self) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("source", "gives"),
    [(Draws(), bytes), (range(3), int), ([1, 2], int), ((1, "a"), Any), ([], Any), (iter([1]), Any), ([True, 1], Any)],
)
def test_a_source_says_what_it_draws(source, gives):
    assert drawn_by(source) == gives


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int, "int"),
        (list[int | None], "list[int | NoneType]"),
        (Gathered[tuple[str, ...]], "Gathered[tuple[str, ...]]"),
        (Any, "anything (untyped)"),
        (object, "anything (untyped)"),
    ],
)
def test_types_are_written_as_a_user_would(hint, text):
    assert type_name(hint) == text


def test_a_hint_that_says_nothing_is_untyped():
    assert [untyped(hint) for hint in (Any, object, None, T, int, type(None))] == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("hints", "joined"),
    [([int], int), ([int, int], int), ([int, str], int | str), ([int | str, str], int | str), ([int, Any], Any), ([T], T)],
)
def test_what_has_one_of_several_types_has_their_union(hints, joined):
    """Behind a merge; an input that says nothing leaves nothing to say."""
    assert united(hints) == joined


def test_the_values_of_a_literal_are_listed():
    assert literals(Literal["a", "b"] | Literal[1]) == ["a", "b", 1]
    assert literals(Annotated[Literal["a"], "note"]) == ["a"]
    assert literals(Literal["a"] | int) == literals(str) == literals(Any) == []


def test_only_a_hint_tells_that_a_stage_gives_at_most_one():
    def one(value: int, context: Context) -> Awaitable[int | Filtered]: ...

    def unknown(value, context): ...

    def some(value: int, context: Context) -> Awaitable[Failed[int] | Many[int]]: ...

    assert [may_give_many(work) for work in (one, Stage(), many, some, unknown, len)] == [False, False, True, True, True, True]

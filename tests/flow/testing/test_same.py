"""Values are compared part by part, where == would say nothing or the wrong thing."""

import math
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest

from flow.testing._same import same


class Record(msgspec.Struct, eq=False):
    values: np.ndarray
    text: str = ""


@dataclass(eq=False)
class Plain:
    number: float
    parts: list = field(default_factory=list)


class Bare:
    def __init__(self, number):
        self.number = number


def values() -> list:
    return [
        1, 1.5, math.nan, "a", b"a", None, (1, [2, {"a": {3}}]), {"a": math.nan}, ValueError("x"), range(3),
        np.array([1.0, math.nan]), np.array([[1, 2]]), Record(np.arange(3), "a"), Plain(math.nan, [1]), Bare(2), frozenset({1}),
    ]  # fmt: skip


def test_equal_values_made_apart_are_the_same():
    for left, right in zip(values(), values(), strict=True):
        assert same(left, right), left


@pytest.mark.parametrize("place", range(len(values())))
def test_different_values_are_not(place):
    assert [other for other in range(len(values())) if same(values()[place], values()[other])] == [place]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0), ([1], (1,)), ([1], [1, 2]), ({"a": 1}, {"b": 1}), (Record(np.arange(3)), Record(np.arange(4))),
        (Plain(1.0, [1]), Plain(1.0, [2])), (Bare(1), Bare(2)), (np.array([1.0]), np.array([2.0])), ({1}, {2}),
        (np.zeros((2, 1)), np.zeros((1, 2))), (ValueError("x"), ValueError("y")),
    ],
)  # fmt: skip
def test_a_difference_in_any_part_counts(left, right):
    assert not same(left, right)

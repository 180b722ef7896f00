"""One step is one big batch, however it is cut: into groups, rows and micro-batches, and in whatever order."""

import functools
import itertools
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.batches.rows import RowFiller
from stages.losses.policy import PolicyLoss
from stages.records import Segment
from stages.train.config import TrainerConfig
from stages.train.learner import Learner

pytestmark = pytest.mark.slow  # A few programs, compiled once.

SHAPES = ((1, 12), (2, 12), (5, 24))


@pytest.fixture(scope="module")
def segments(segment) -> list[Segment]:
    """Of several lengths, and each of its own weight in the sum."""
    random = np.random.default_rng(8)
    return [
        msgspec.structs.replace(segment(random, length), weight=1 / (number + 1))
        for number, length in enumerate((6, 5, 12, 4, 3, 7, 9, 3))
    ]


@pytest.fixture(scope="module")
def gradient(tiny):
    """(shape, groups) -> loss, norm and sums of an update, and the gradient summed."""

    @functools.cache
    def learner(shape: tuple[int, int]) -> Learner:
        made = Learner(tiny(), PolicyLoss(), TrainerConfig(row_length=shape[1], rows_per_microbatch=shape[0]), 1.0)
        made.compile()
        return made

    def take(shape: tuple[int, int], groups: list[list[Segment]]) -> Any:
        one, filler = learner(shape), RowFiller([shape])
        for rows in [*(rows for group in groups for rows in filler.add([(s,) for s in group])), *filler.flush()]:
            one.accumulate(rows, 0)
        summed = jax.device_get(one.accumulated)
        one.update(0.0, np.inf)  # accumulates from zero again, and changes nothing
        return summed

    return take


@pytest.fixture(scope="module")
def alone(segments, gradient) -> list[Any]:
    """What each segment gives by itself, in a row of its own."""
    return [gradient((1, 12), [[segment]]) for segment in segments]


@settings(max_examples=40)
@given(order=st.permutations(range(8)), cuts=st.lists(st.integers(0, 8), max_size=5), shape=st.sampled_from(SHAPES))
def test_gradient_and_loss_do_not_depend_on_the_cut(segments, gradient, alone, order, cuts, shape):
    """S77: any order, any groups, any shape of rows against all segments one by one, each in a row of its own."""
    bounds = [0, *sorted(cuts), len(order)]
    groups = [[segments[number] for number in order[start:stop]] for start, stop in itertools.pairwise(bounds)]
    got = gradient(shape, groups)
    expected = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *alone)
    for name in ("loss", "gradient", "sums"):
        for one, other in zip(*(jax.tree.leaves(getattr(each, name)) for each in (got, expected)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=name)
    assert got.gap.num == sum(int(segment.mask.sum()) for segment in segments)
    assert got.gap.max == pytest.approx(max(each.gap.max for each in alone), rel=1e-5)

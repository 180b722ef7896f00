import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.batches.plan import check_row_lengths, least_capacity, plan_rows, whole_shapes, with_parts


def test_the_longest_unit_goes_first_and_each_where_the_least_room_is_left():
    """Worked out by hand: 6 and 5 open rows; 3 fits best behind 5, 2 behind 6, and 1 opens a row of its own."""
    rows = plan_rows([2, 5, 1, 6, 3], [8])
    assert [(row.tokens, row.units) for row in rows] == [(8, (0, 3)), (8, (1, 4)), (1, (2,))]


def test_a_unit_opens_the_shortest_row_that_holds_it():
    rows = plan_rows([4, 5, 4, 3, 1], [4, 8])
    assert [(row.length, row.units) for row in rows] == [(4, (0,)), (8, (1, 3)), (4, (2,)), (4, (4,))]


def test_equal_units_keep_their_order():
    assert [row.units for row in plan_rows([4] * 5, [8])] == [(0, 1), (2, 3), (4,)]


units = st.lists(st.integers(1, 16), min_size=1, max_size=20)


@given(units, st.sampled_from([(16,), (4, 16), (4, 8, 16)]))
def test_every_unit_lies_in_one_row_that_holds_it(lengths, row_lengths):
    rows = plan_rows(lengths, row_lengths)
    assert sorted(itertools.chain.from_iterable(row.units for row in rows)) == list(range(len(lengths)))
    for row in rows:
        assert row.tokens == sum(lengths[unit] for unit in row.units) <= row.length
        assert row.length in row_lengths
    fills = [row.tokens / row.length for row in rows]
    assert fills == sorted(fills, reverse=True)


@given(units, st.sampled_from([((4, 16),), ((4, 16), (1, 16)), ((2, 16), (1, 16), (8, 4), (2, 4))]))
def test_the_micro_batches_of_an_end_hold_every_unit_once(lengths, shapes):
    blocks = least_capacity(lengths, shapes)
    assert sorted(unit for _, rows in blocks for row in rows for unit in row.units) == list(range(len(lengths)))
    for (count, length), rows in blocks:
        assert (count, length) in shapes
        assert 1 <= len(rows) <= count
        assert all(row.length == length for row in rows)


@pytest.mark.parametrize(
    ("lengths", "shapes", "expected"),
    [
        ([16] * 5, [(4, 16)], [(4, 16), (4, 16)]),
        ([16] * 5, [(4, 16), (1, 16)], [(4, 16), (1, 16)]),
        ([16] * 3, [(4, 16), (2, 16)], [(4, 16)]),  # two parts are no smaller than the whole
        ([4, 4], [(4, 16), (1, 16), (16, 4), (4, 4)], [(4, 4)]),  # as much capacity as one row of 16, less attention
        ([16, 4], [(4, 16), (1, 16), (16, 4), (4, 4)], [(1, 16), (4, 4)][::-1]),
        ([12, 4], [(4, 16), (1, 16), (16, 4), (4, 4)], [(1, 16)]),
    ],
)
def test_the_end_of_a_step_takes_the_least_capacity(lengths, shapes, expected):
    assert [shape for shape, _ in least_capacity(lengths, shapes)] == expected


def test_whole_micro_batches_have_as_many_tokens_whatever_the_length_of_their_rows():
    assert whole_shapes(2, 16, (4, 6)) == ((2, 16), (5, 6), (8, 4))  # 6 does not divide 32: two places fewer


def test_parts_come_behind_the_whole_and_divide_over_the_devices_that_share_them():
    whole = ((4, 16), (16, 4))
    assert with_parts(whole, 1) == whole
    assert with_parts(whole, 4) == (*whole, (1, 16), (4, 4))
    assert with_parts(whole, 4, share=2) == (*whole, (4, 4))
    assert with_parts(((1, 16),), 4) == ((1, 16),)  # a row is in one piece


@pytest.mark.parametrize("row_lengths", [(1,), (8, 4), (4, 4), (16,)])
def test_row_lengths_ascend_to_below_the_longest(row_lengths):
    with pytest.raises(ValueError, match="expected row_lengths in ascending order, from 2 to below row_length=16; got"):
        check_row_lengths(row_lengths, 16)

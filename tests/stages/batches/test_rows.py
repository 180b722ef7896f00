import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.batches.rows import RowFiller, Rows, empty_rows
from stages.records import Segment

SHAPES = ((2, 16), (1, 16), (8, 4), (2, 4))


def segment(length: int, first: int = 0, **arrays: np.ndarray) -> Segment:
    """Tokens that are told apart by their ids."""
    return Segment((first + np.arange(length)).astype(np.int32), np.arange(length) >= 1, **arrays)


def numbered(lengths: list[int]) -> list[Segment]:
    """Segments in which no id comes twice, each with numbers of its own."""
    made, first = [], 1
    for length in lengths:
        values = (np.arange(length) + first / 8).astype(np.float32)
        versions = np.full(length, first, np.int32)
        made.append(segment(length, first, advantages=values, logprobs=-values, versions=versions, reference=values + 1))
        first += length
    return made


def read_back(blocks: list[Rows]) -> list[tuple]:
    """Every segment of some micro-batches, as it stands in the arrays."""
    found = []
    for block in blocks:
        for row in range(block.shape[0]):
            for number in sorted(set(block.segments[row].tolist()) - {0}):
                at = block.segments[row] == number
                assert np.all(np.diff(np.flatnonzero(at)) == 1)
                found.append(
                    tuple(array[row][at].tolist() for array in block if array is not None and array is not block.segments)
                )
    return found


def filled(units: list[tuple[Segment, ...]], shapes=SHAPES, cut: int = 3, optional=("reference",)) -> list[Rows]:
    """All micro-batches of a step whose units come in groups of ``cut``."""
    filler = RowFiller(shapes, optional)
    blocks = [block for at in range(0, len(units), cut) for block in filler.add(units[at : at + cut])]
    return blocks + filler.flush() + filler.flush()


@given(st.lists(st.integers(2, 16), max_size=24), st.integers(1, 5), st.sampled_from([SHAPES, ((2, 16),), ((1, 16),)]))
def test_each_token_of_each_segment_comes_once(lengths, cut, shapes):
    """S77, S39: nothing is dropped, whole micro-batches or not; positions count from 0 in each segment."""
    segments = numbered(lengths)
    blocks = filled([(one,) for one in segments], shapes, cut)
    expected = [
        (
            s.ids.tolist(),
            list(range(len(s.ids))),
            s.mask.tolist(),
            s.mask.astype(float).tolist(),
            np.where(s.mask, s.advantages, 0).tolist(),
            np.where(s.mask, s.logprobs, 0).tolist(),
            np.where(s.mask, s.versions, -1).tolist(),
            np.where(s.mask, s.reference, 0).tolist(),
        )
        for s in segments
    ]
    assert sorted(read_back(blocks)) == sorted(expected)
    assert {block.shape for block in blocks} <= set(shapes)


@given(st.lists(st.integers(2, 16), max_size=12))
def test_padding_has_no_target_and_no_number(lengths):
    """S73: rows of filling are empty, not copies of real ones."""
    for block in filled([(one,) for one in numbered(lengths)]):
        padding = block.segments == 0
        for name in ("ids", "positions", "mask", "weights", "advantages", "logprobs", "reference"):
            assert not getattr(block, name)[padding].any()
        assert (block.versions[padding] == -1).all()


def test_ten_rows_in_fours_make_three_micro_batches():
    """S77, S73: 10 rows, micro-batch 4; the two rows of filling hold no target."""
    blocks = filled([(one,) for one in numbered([16] * 10)], ((4, 16),))
    assert [block.mask.any(axis=1).sum() for block in blocks] == [4, 4, 2]
    assert blocks[2].ids[2:].max() == 0


def test_segments_of_several_groups_share_a_row():
    """Each group alone leaves half of its row empty."""
    blocks = filled([(one,) for one in numbered([8, 8, 8, 8])], ((2, 16),), cut=1)
    assert [block.segments.tolist() for block in blocks] == [[[1] * 8 + [2] * 8] * 2]


def test_a_micro_batch_leaves_as_soon_as_it_is_full():
    filler = RowFiller(((2, 16),))
    units = [(one,) for one in numbered([10, 12, 6, 4, 5])]
    assert [len(filler.add([unit])) for unit in units] == [0, 0, 0, 1, 0]
    (rest,) = filler.flush()
    assert rest.ids.max() == 37


@given(st.lists(st.integers(2, 16), max_size=60), st.sampled_from([SHAPES, ((2, 16),)]))
def test_what_waits_is_bounded(lengths, shapes):
    """At most a micro-batch more than there are row lengths, and one unit."""
    filler, waiting = RowFiller(shapes), 0
    for one in numbered(lengths):
        waiting += len(one.ids)
        waiting -= sum(int((block.segments > 0).sum()) for block in filler.add([(one,)]))
        assert waiting < 32 * (len({length for _, length in shapes}) + 1)


def test_the_same_units_give_the_same_rows():
    units = [(one,) for one in numbered([3, 9, 4, 16, 2, 2, 7, 11, 5])]
    first, second = filled(units), filled(units)
    assert [block.ids.tolist() for block in first] == [block.ids.tolist() for block in second]


@pytest.mark.parametrize("kind", ["log-normal", "pareto"])
@pytest.mark.parametrize("count", [32, 256])
def test_rows_of_heavy_tailed_lengths_are_nine_tenths_full(kind, count):
    """Tokens over the capacity of all micro-batches of a step, the half-empty last ones among them: mean of 10 samples."""
    row, shares = 256, []
    shapes = ((2, row), (1, row), (8, row // 4), (2, row // 4))
    for seed in range(10):
        random = np.random.default_rng(seed)
        drawn = 0.12 * np.exp(random.normal(size=count)) if kind == "log-normal" else 0.07 * (1 + random.pareto(1.2, count))
        lengths = np.clip(row * drawn, 2, row).astype(int)
        lengths[random.integers(count)] = row
        blocks = filled([(segment(length),) for length in lengths], shapes, cut=8, optional=())
        shares.append(lengths.sum() / sum(block.ids.size for block in blocks))
    assert np.mean(shares) > 0.93
    assert min(shares) > 0.88


def test_a_pair_shares_a_row_and_begins_with_an_odd_number():
    """One that follows a single segment skips a number; so whoever reads pairs finds 2n - 1 and 2n."""
    pair = (segment(3, 100), segment(4, 200))
    (block,) = filled([(segment(5),), pair], ((1, 16),))
    assert block.segments[0].tolist() == [1] * 5 + [3] * 3 + [4] * 4 + [0] * 4
    assert block.ids[0, 5:12].tolist() == [100, 101, 102, 200, 201, 202, 203]


def test_a_unit_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match=r"segment: expected at most row_length=16 tokens, got 17; give Pack and Trainer"):
        RowFiller(SHAPES).add([(segment(17),)])


def test_arrays_that_the_loss_does_not_read_are_none():
    rows = empty_rows(2, 4, ("values", "returns"))
    assert rows.reference is None
    assert rows.proximal is None
    assert rows.values.shape == rows.returns.shape == (2, 4)
    assert rows.values.dtype == np.float32

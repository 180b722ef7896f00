import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.batches.microbatch import Rows, cut, empty_rows, padded, rows_of
from stages.batches.pack import Segment, pack


def numbered(first: int, count: int) -> Rows:
    """Rows whose ids are their number in the stream."""
    ids = np.repeat(np.arange(first, first + count, dtype=np.int32)[:, None], 4, axis=1)
    ones = np.ones((count, 4), np.int32)
    return Rows(ids, ones, ones, ones.astype(bool), ones.astype(np.float32), ones.astype(np.float32), ones)


@given(st.lists(st.integers(0, 7), max_size=8), st.integers(1, 5))
def test_every_row_comes_once_in_stream_order(sizes, size):
    """S77: the last, incomplete micro-batch is filled up and not dropped."""
    rest, blocks, first = empty_rows(0, 4), [], 1
    for count in sizes:
        full, rest = cut(rest, numbered(first, count), size)
        assert rest.num_rows < size
        blocks += full
        first += count
    if rest.num_rows:
        blocks.append(padded(rest, size))
    assert {block.ids.shape for block in blocks} <= {(size, 4)}
    seen = np.concatenate([np.zeros(0, np.int32), *(block.ids[:, 0] for block in blocks)])
    total = sum(sizes)
    assert seen[:total].tolist() == list(range(1, total + 1))
    assert not seen[total:].any()
    assert len(seen) - total < size


def test_ten_rows_in_fours_make_three_micro_batches():
    """S77, S73: 10 rows, micro-batch 4; the two rows of filling hold no target."""
    full, rest = cut(empty_rows(0, 4), numbered(1, 10), 4)
    last = padded(rest, 4)
    assert [block.num_rows for block in full] == [4, 4]
    assert last.ids[:, 0].tolist() == [9, 10, 0, 0]
    assert last.mask.sum(axis=1).tolist() == [4, 4, 0, 0]
    assert all(array.dtype == other.dtype for array, other in zip(last, full[0], strict=True))


def test_the_rows_of_a_batch_are_its_own_arrays():
    batch = pack(0, [Segment(np.arange(3, dtype=np.int32), np.array([False, True, True]))], row_length=4)
    assert all(array is getattr(batch, name) for name, array in rows_of(batch)._asdict().items())

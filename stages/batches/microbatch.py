"""Micro-batches: a stream of batches cut into blocks of one fixed shape, so that one compiled program serves them all. Pure.

Rows keep the order of the stream, and nothing is dropped: what is left at the end of a step is filled up with empty rows, which
have no target.

Axes: R rows of a batch, N rows of a micro-batch, L length of a row.
"""

from typing import NamedTuple

import numpy as np

from stages.records import Batch


class Rows(NamedTuple):
    """Arrays of some rows, as in ``Batch``. A named tuple, so that it goes through ``jax.jit`` as it is."""

    ids: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    mask: np.ndarray
    logprobs: np.ndarray
    advantages: np.ndarray
    versions: np.ndarray

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.ids)


def rows_of(batch: Batch) -> Rows:
    """The rows of a batch, without what is only for the metrics."""
    return Rows(*(getattr(batch, name) for name in Rows._fields))


def empty_rows(num_rows: int, row_length: int) -> Rows:
    """Rows of padding only."""
    shape = (num_rows, row_length)
    integers = [np.zeros(shape, np.int32) for _ in range(3)]
    floats = [np.zeros(shape, np.float32) for _ in range(2)]
    return Rows(*integers, np.zeros(shape, bool), *floats, np.full(shape, -1, np.int32))


def cut(rest: Rows, rows: Rows, size: int) -> tuple[list[Rows], Rows]:
    """Full micro-batches out of what was left over and what came.

    Args:
        rest: rows left over by the call before, fewer than ``size``.
        rows: the next rows of the stream.
        size: N.

    Returns:
        Micro-batches [N, L] in stream order, and the rows left over, fewer than N.
    """
    joined = Rows(*(np.concatenate(pair) for pair in zip(rest, rows, strict=True)))
    stop = joined.num_rows - joined.num_rows % size
    full = [Rows(*(array[start : start + size] for array in joined)) for start in range(0, stop, size)]
    return full, Rows(*(array[stop:] for array in joined))


def padded(rest: Rows, size: int) -> Rows:
    """The rows left over, with empty rows up to a micro-batch [N, L]."""
    missing = empty_rows(size - rest.num_rows, rest.ids.shape[1])
    return Rows(*(np.concatenate(pair) for pair in zip(rest, missing, strict=True)))

"""Rows of one static length, filled with the segments of a step, and cut into micro-batches. Pure.

Nothing is dropped: what is left at the end of a step is filled up with empty rows, which have no target.

Axes: N rows of a micro-batch, L length of a row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stages.records import Batch, Segment

Unit = tuple[Segment, ...]


class Rows(NamedTuple):
    """Packed arrays [N, L]. A named tuple, so that it goes through ``jax.jit`` as it is.

    Segment numbers start at 1 in each row; 0 is padding. Arrays that the loss does not read are ``None``; elsewhere than at
    targets they are 0, versions -1.
    """

    ids: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    mask: np.ndarray
    weights: np.ndarray
    advantages: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    proximal: np.ndarray | None = None
    reference: np.ndarray | None = None
    values: np.ndarray | None = None
    returns: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.ids)


OPTIONAL = ("reference", "values", "returns")


def empty_rows(num_rows: int, row_length: int, optional: Sequence[str] = ()) -> Rows:
    """Rows of padding only.

    Args:
        num_rows: N.
        row_length: L.
        optional: names of the optional arrays to have.
    """
    shape = (num_rows, row_length)
    integers = [np.zeros(shape, np.int32) for _ in range(3)]
    floats = [np.zeros(shape, np.float32) for _ in range(3)]
    rest = {name: np.zeros(shape, np.float32) for name in optional}
    return Rows(*integers, np.zeros(shape, bool), *floats, np.full(shape, -1, np.int32), **rest)


def rows_of(batch: Batch, row_length: int, optional: Sequence[str] = ()) -> Rows:
    """The units of one batch in as few rows as first-fit gives.

    Raises:
        ValueError: a unit is longer than a row.
    """
    filler = RowFiller(1, row_length, optional)
    blocks = filler.add(batch.units) + filler.flush()
    return joined([empty_rows(0, row_length, optional), *blocks])


def joined(blocks: Sequence[Rows]) -> Rows:
    """Blocks of rows one under another."""
    arrays = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in Rows._fields
        if getattr(blocks[0], name) is not None
    }
    return Rows(**arrays)


class RowFiller:
    """Lays units into rows as they come, first-fit, and gives micro-batches as they fill up."""

    def __init__(self, num_rows: int, row_length: int, optional: Sequence[str] = ()) -> None:
        self._num_rows, self._row_length, self._optional = num_rows, row_length, tuple(optional)
        self._open: list[list[Segment]] = []
        self._free: list[int] = []

    def add(self, units: Sequence[Unit]) -> list[Rows]:
        """Micro-batches that are now full."""
        for unit in units:
            length = sum(len(segment.ids) for segment in unit)
            if length > self._row_length:
                raise ValueError(
                    f"{unit[0].name}: expected at most row_length={self._row_length} tokens, got {length}; "
                    "give Pack and Trainer the same row_length"
                )
            row = next((row for row, room in enumerate(self._free) if room >= length), len(self._free))
            if row == len(self._free):
                self._open.append([])
                self._free.append(self._row_length)
            self._open[row] += unit
            self._free[row] -= length
        full = []
        while len(self._open) > self._num_rows:  # the last row may still take more
            full.append(self._taken(self._num_rows))
        return full

    def flush(self) -> list[Rows]:
        """What is left, with empty rows up to a micro-batch; nothing where there is nothing."""
        return [self._taken(min(self._num_rows, len(self._open)))] if self._open else []

    def _taken(self, count: int) -> Rows:
        rows = empty_rows(self._num_rows, self._row_length, self._optional)
        for row, segments in enumerate(self._open[:count]):
            start = 0
            for number, segment in enumerate(segments, start=1):
                _write(rows, row, start, number, segment)
                start += len(segment.ids)
        del self._open[:count], self._free[:count]
        return rows


def _write(rows: Rows, row: int, start: int, number: int, segment: Segment) -> None:
    span = slice(start, start + len(segment.ids))
    rows.ids[row, span] = segment.ids
    rows.positions[row, span] = np.arange(len(segment.ids))
    rows.segments[row, span] = number
    rows.mask[row, span] = segment.mask
    rows.weights[row, span] = np.where(segment.mask, segment.weight, 0.0)
    if segment.versions is not None:
        rows.versions[row, span] = np.where(segment.mask, segment.versions, -1)
    for name in ("advantages", "logprobs", "reference", "values", "returns"):
        array, target = getattr(segment, name), getattr(rows, name)
        if array is not None and target is not None:
            target[row, span] = np.where(segment.mask, array, 0.0)

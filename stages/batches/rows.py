"""Rows of a few static shapes, filled with the segments of a step. Pure; where each lies is decided in ``plan.py``.

Nothing is dropped: what is left at the end of a step is filled up with empty rows, which have no target.

Axes: N rows of a micro-batch, L length of a row.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stages.batches.plan import PlannedRow, Shape, least_capacity, plan_rows
from stages.records import Segment

Unit = tuple[Segment, ...]

GOOD_FILL = 0.97
"""Share of a micro-batch that is worth no more waiting."""


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
    def shape(self) -> Shape:
        """(N, L), of the arrays."""
        return self.ids.shape[0], self.ids.shape[1]


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


class RowFiller:
    """Lays units into rows, over the groups of a step, and gives micro-batches as they fill up.

    Units wait in a window until some shape has as many rows as it takes, at least ``GOOD_FILL`` full, or until the window holds
    a micro-batch more than there are row lengths; then the fullest rows leave. So the window is bounded, and what leaves is a
    function of the units and the order they came in.

    Args:
        shapes: (rows, tokens of a row) that micro-batches may have. Of each row length the one with the most rows is what a
            step is cut into; those with fewer are for its end.
        optional: names of the optional arrays to have.
    """

    def __init__(self, shapes: Sequence[Shape], optional: Sequence[str] = ()) -> None:
        self._shapes, self._optional = tuple(shapes), tuple(optional)
        self._row_lengths = sorted({length for _, length in shapes})
        self._whole = {length: max(rows for rows, of in shapes if of == length) for length in self._row_lengths}
        self._most = (len(self._row_lengths) + 1) * max(rows * length for rows, length in shapes)
        self._waiting: list[Unit] = []
        self._tokens = 0

    def add(self, units: Sequence[Unit]) -> list[Rows]:
        """Micro-batches that are now full."""
        full = []
        for unit in units:
            length = unit_length(unit)
            if length > self._row_lengths[-1]:
                raise ValueError(
                    f"{unit[0].name}: expected at most row_length={self._row_lengths[-1]} tokens, got {length}; "
                    "give Pack and Trainer the same row_length"
                )
            self._waiting.append(unit)
            self._tokens += length
        while (block := self._fullest()) is not None:
            full.append(self._taken(*block))
            self._keep_all_but(block[1])
        return full

    def flush(self) -> list[Rows]:
        """What is left, with empty rows up to a micro-batch; nothing where there is nothing."""
        if not self._waiting:
            return []
        blocks = least_capacity([unit_length(unit) for unit in self._waiting], self._shapes)
        rest = [self._taken(*block) for block in blocks]
        self._waiting, self._tokens = [], 0
        return rest

    def _fullest(self) -> tuple[Shape, list[PlannedRow]] | None:
        """The micro-batch that is to leave now."""
        if self._tokens < GOOD_FILL * min(rows * length for length, rows in self._whole.items()):
            return None
        planned = plan_rows([unit_length(unit) for unit in self._waiting], self._row_lengths)
        blocks = []
        for length, count in self._whole.items():
            rows = [row for row in planned if row.length == length][:count]
            if len(rows) == count:
                blocks.append((sum(row.tokens for row in rows) / (count * length), (count, length), rows))
        fill, shape, rows = max(blocks, key=lambda block: block[:2], default=(0.0, (0, 0), []))
        return (shape, rows) if rows and (fill >= GOOD_FILL or self._tokens >= self._most) else None

    def _keep_all_but(self, rows: Sequence[PlannedRow]) -> None:
        gone = {unit for row in rows for unit in row.units}
        self._waiting = [unit for index, unit in enumerate(self._waiting) if index not in gone]
        self._tokens -= sum(row.tokens for row in rows)

    def _taken(self, shape: Shape, planned: Sequence[PlannedRow]) -> Rows:
        rows = empty_rows(*shape, self._optional)
        for row, plan in enumerate(planned):
            start, number = 0, 1
            for unit in (self._waiting[index] for index in plan.units):
                number += (len(unit) == 2) & (number % 2 == 0)  # a pair begins with an odd number
                for segment in unit:
                    _write(rows, row, start, number, segment)
                    start, number = start + len(segment.ids), number + 1
        return rows


def unit_length(unit: Unit) -> int:
    """Tokens of a unit."""
    return sum(len(segment.ids) for segment in unit)


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

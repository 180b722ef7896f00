"""Which unit lies in which row: best-fit decreasing over rows of several lengths; which shapes there are. Pure; lengths only.

Who waits for what, and what is written into arrays, stands in ``rows.py``.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Shape = tuple[int, int]
"""(rows of a micro-batch, tokens of a row)"""


def whole_shapes(num_rows: int, row_length: int, row_lengths: Sequence[int] = ()) -> tuple[Shape, ...]:
    """The shape of a micro-batch for each length of rows, the longest first: as many rows as give it as many tokens.

    Args:
        num_rows: rows of the longest kind in it.
        row_length: tokens of these.
        row_lengths: tokens of shorter rows, in ascending order.
    """
    return tuple((num_rows * row_length // length, length) for length in (row_length, *reversed(row_lengths)))


def with_parts(shapes: Sequence[Shape], split: int, share: int = 1) -> tuple[Shape, ...]:
    """Shapes, and behind them those of their parts.

    Args:
        shapes: of whole micro-batches.
        split: parts that one is cut into.
        share: devices that share rows: parts that do not divide over them are left out.
    """
    parts = [(max(rows // split, 1), length) for rows, length in shapes]
    return tuple(dict.fromkeys((*shapes, *((rows, length) for rows, length in parts if rows % share == 0))))


def check_row_lengths(row_lengths: Sequence[int], row_length: int) -> None:
    """Refuse lengths that do not ascend.

    Raises:
        ValueError: they do not.
    """
    lengths = (*row_lengths, row_length)
    if lengths[0] < 2 or any(short >= long for short, long in itertools.pairwise(lengths)):
        raise ValueError(
            f"expected row_lengths in ascending order, from 2 to below row_length={row_length}; "
            f"got {tuple(row_lengths)}; order them, and leave row_length itself out"
        )


class PlannedRow(NamedTuple):
    """One row that is to be."""

    length: int
    """Tokens it holds."""
    tokens: int
    """Tokens in it."""
    units: tuple[int, ...]
    """Indices of the units in it, in ascending order."""


def plan_rows(lengths: Sequence[int], row_lengths: Sequence[int]) -> list[PlannedRow]:
    """Rows for units of these lengths, fullest first.

    The longest unit comes first and goes where the least room is left behind it; one that fits nowhere opens a row of the
    shortest length that holds it. So long rows come only with long units, and short units fill what is left of them. Equal
    units keep their order, so the plan is a function of its arguments.

    Args:
        lengths: tokens of each unit.
        row_lengths: in ascending order; the last holds every unit.

    Source: Johnson 1973, "Near-optimal bin packing algorithms", best-fit decreasing; we differ in that rows of several lengths
        are opened.
    """
    opened: list[tuple[int, int, list[int]]] = []  # (length, tokens, units)
    room: list[tuple[int, int]] = []  # (free, row) in ascending order
    for unit in sorted(range(len(lengths)), key=lambda unit: (-lengths[unit], unit)):
        needed = lengths[unit]
        at = bisect.bisect_left(room, (needed, -1))
        if at < len(room):
            free, row = room.pop(at)
        else:
            free, row = row_lengths[bisect.bisect_left(row_lengths, needed)], len(opened)
            opened.append((free, 0, []))
        length, tokens, units = opened[row]
        opened[row] = (length, tokens + needed, [*units, unit])
        if free > needed:
            bisect.insort(room, (free - needed, row))
    rows = [PlannedRow(length, tokens, tuple(sorted(units))) for length, tokens, units in opened]
    return sorted(rows, key=lambda row: (-row.tokens / row.length, row.units))


def least_capacity(lengths: Sequence[int], shapes: Sequence[Shape]) -> list[tuple[Shape, list[PlannedRow]]]:
    """Micro-batches that hold all units in as little capacity as the shapes allow, of the least attention where that is equal.

    Args:
        lengths: tokens of each unit.
        shapes: what a micro-batch may be; of one length there may be several, the longest holds every unit.

    Returns:
        Each with its shape, and at most as many rows as that has.
    """
    row_lengths = sorted({length for _, length in shapes})
    plans = [_cut(plan_rows(lengths, chosen), shapes) for chosen in _subsets(row_lengths) if chosen[-1] >= max(lengths)]
    return min(plans, key=lambda plan: (_capacity(plan, 1), _capacity(plan, 2)))


def _subsets(row_lengths: Sequence[int]) -> Iterable[tuple[int, ...]]:
    sizes = range(1, len(row_lengths) + 1)
    return itertools.chain.from_iterable(itertools.combinations(row_lengths, size) for size in sizes)


def _cut(rows: Sequence[PlannedRow], shapes: Sequence[Shape]) -> list[tuple[Shape, list[PlannedRow]]]:
    blocks = []
    for length in sorted({row.length for row in rows}):
        left = [row for row in rows if row.length == length]
        sizes = sorted(count for count, of in shapes if of == length)
        while left:
            # The largest that is filled whole; else that whose repetition wastes the least, the largest of equals.
            whole = [size for size in sizes if size <= len(left)]
            least = min(sizes, key=lambda size: (math.ceil(len(left) / size) * size, -size))
            size = least if math.ceil(len(left) / least) == 1 or not whole else whole[-1]
            blocks.append(((size, length), left[:size]))
            left = left[size:]
    return blocks


def _capacity(plan: Sequence[tuple[Shape, list[PlannedRow]]], power: int) -> int:
    """Tokens that fit (power 1), or pairs of tokens of one row (power 2)."""
    return sum(rows * length**power for (rows, length), _ in plan)

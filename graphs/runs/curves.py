"""Small curves made of characters: a line of blocks, and a plot of braille dots. Pure functions of numbers."""

import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character, by row and column of its dots."""
_EMPTY = 0x2800


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve of one line.

    Args:
        values: oldest first; what is not finite leaves a gap.
        width: most characters; more values than that are averaged.
    """
    points = thinned(values, width)
    low, high = _range(points)
    return "".join(" " if point is None else _BLOCKS[round((point - low) / (high - low) * 7)] for point in points)


def plot(values: Sequence[float], width: int, height: int) -> list[str]:
    """A curve of dots from one side to the other, its points joined.

    Args:
        values: oldest first; what is not finite leaves a gap.
        width: characters, of two dots each.
        height: lines, of four dots each.
    """
    cells = [[_EMPTY] * width for _ in range(height)]
    points = _stretched(thinned(values, 2 * width), 2 * width)
    low, high = _range(points)
    before: int | None = None
    for column, point in enumerate(points):
        row = None if point is None else round((high - point) / (high - low) * (4 * height - 1))
        if row is not None:
            start = row if before is None else before
            for dot in range(min(start, row), max(start, row) + 1):
                cells[dot // 4][column // 2] |= _DOTS[dot % 4][column % 2]
        before = row
    return ["".join(map(chr, line)) for line in cells]


def thinned(values: Sequence[float], most: int) -> list[float | None]:
    """At most so many values: means of those that stand together; ``None`` where none of them is finite."""
    count = len(values)
    if count <= most:
        parts = [[value] for value in values]
    else:
        parts = [list(values[at * count // most : (at + 1) * count // most]) for at in range(most)]
    kept = [[value for value in part if math.isfinite(value)] for part in parts]
    return [sum(part) / len(part) if part else None for part in kept]


def _stretched(points: Sequence[float | None], columns: int) -> list[float | None]:
    """Points spread over more columns, straight lines between them; a gap stays one."""
    found: list[float | None] = []
    for column in range(columns if points else 0):
        place = column * (len(points) - 1) / max(columns - 1, 1)
        left, part = int(place), place - int(place)
        one, other = points[left], points[min(left + 1, len(points) - 1)]
        found.append(one if part == 0 or one is None or other is None else one + (other - one) * part)
    return found


def _range(points: Sequence[float | None]) -> tuple[float, float]:
    known = [point for point in points if point is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    return (low, high) if high > low else (low, low + 1.0)

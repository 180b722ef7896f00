"""Series of a plot, and how a long one is thinned out: values that a page can draw. Pure; no markup."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

Values = Sequence[float | None]
"""A value for each place of the plot's x axis, ``None`` where there is none: a gap."""
MOST_POINTS = 240
"""Points of a series that are drawn: a phone shows no more."""


@dataclass(frozen=True)
class Series:
    """One line, or one layer of a stack.

    Attributes:
        label: name for people.
        values: see ``Values``.
        low: lower edge of a band around them; empty for none.
        high: upper edge.
        color: number of its colour; ``None`` for that of its place.
    """

    label: str
    values: Values
    low: Values = ()
    high: Values = ()
    color: int | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing of it can be drawn."""
        return all(value is None for value in self.values)


def thinned(xs: Sequence[float], series: Sequence[Series], most: int = MOST_POINTS) -> tuple[list[float], list[Series], int]:
    """As many points as can be seen: each the mean of equally many, the least and most of them as a band.

    Args:
        xs: ascending.
        series: of as many values.
        most: points.

    Returns:
        The last x of each point, the series, and how many values a point is made of: 1 where nothing was left out.
    """
    width = max(1, math.ceil(len(xs) / most))
    if width == 1:
        return list(xs), list(series), 1
    cuts = range(0, len(xs), width)
    return [xs[min(at + width, len(xs)) - 1] for at in cuts], [_thinned(one, width) for one in series], width


def _thinned(series: Series, width: int) -> Series:
    blocks = _blocks(series.values, width)
    low = _blocks(series.low, width) if series.low else blocks
    high = _blocks(series.high, width) if series.high else blocks
    return replace(
        series,
        values=[sum(block) / len(block) if block else None for block in blocks],
        low=[min(block, default=None) for block in low],
        high=[max(block, default=None) for block in high],
    )


def _blocks(values: Values, width: int) -> list[list[float]]:
    return [[v for v in values[at : at + width] if v is not None] for at in range(0, len(values), width)]

"""Plots as SVG that a page holds: lines with bands, points with intervals, stacks. Markup only; what is plotted is elsewhere.

Colours are classes that the page's style gives, so that they follow its theme. The numbers stand beside the picture, in
``data-plot``, for the line of script that tells them under the pointer; without script the picture says all.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from markupsafe import Markup

from graphs.report.axes import Axis, linear, logarithmic, percent, short, spanning, spans_decades
from graphs.report.series import Series, thinned

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 34
MOST_WHISKERS = 40
"""Points that have a whisker each; more of them have a band."""
MOST_BARS = 60
"""Columns that a stack stands in; more of them are areas."""

Point = TypeVar("Point")


@dataclass(frozen=True)
class Plot:
    """What is to be drawn.

    Attributes:
        title: of the plot.
        meaning: one line: what the numbers are, and of what.
        xs: ascending.
        series: each of as many values; those without any are left out.
        unit: of the values; ``share`` writes them as percentages.
        kind: lines, points with their intervals, or layers on one another.
        x_unit: of ``xs``.
        marks: places where the run was gone on with.
        zero: whether the axis begins at 0 where no value is below.
        log: whether ratios may count in place of differences, where values lie decades apart.
        note: said below the plot; empty for nothing.
    """

    title: str
    meaning: str
    xs: Sequence[float]
    series: Sequence[Series]
    unit: str = ""
    kind: Literal["lines", "intervals", "stack"] = "lines"
    x_unit: str = "step"
    marks: Sequence[float] = ()
    zero: bool = True
    log: bool = False
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return all(one.empty for one in self.series)


@dataclass(frozen=True)
class Drawn:
    """A plot for the page.

    Attributes:
        title: of the plot.
        meaning: one line.
        legend: label, number of the colour, and look of each series: a line, ``dashed``, ``dotted``, or a ``block``.
        svg: the picture.
        inside: what is in it, ``WIDTH`` by ``HEIGHT``, to be put into another.
        notes: said below it.
    """

    title: str
    meaning: str
    legend: Sequence[tuple[str, int, str]]
    svg: Markup
    inside: Markup
    notes: Sequence[str]


def drawn(plot: Plot) -> Drawn:
    """Draw a plot that is not empty."""
    own = [one for one in plot.series if not one.empty]
    xs, series, width = thinned(plot.xs, own)
    colors = [at if one.color is None else one.color for at, one in enumerate(series)]
    room = (WIDTH - RIGHT - LEFT) / len(xs) / 2 if plot.kind == "stack" and 1 < len(xs) <= MOST_BARS else 0.0
    across = spanning(xs, LEFT + room, WIDTH - RIGHT - room)
    up = _up(plot, series)
    body = [_grid(up, across, plot), _marks(plot.marks, across)]
    body.append(
        _stack(xs, series, colors, across, up) if plot.kind == "stack" else _lines(plot, xs, series, colors, across, up)
    )
    label = f"{plot.title}: {plot.meaning}"
    inside = Markup("").join(body)
    svg = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" data-plot="{}">{}<line class="cursor"/></svg>').format(
        WIDTH, HEIGHT, label, _numbers(plot, xs, series, across), inside
    )
    notes = [plot.note] if plot.note else []
    if width > 1:
        band = "" if plot.kind == "stack" else ", the band their least and most"
        notes.append(f"each point is the mean of {width} {plot.x_unit}s{band}")
    legend = [(one.label, color, _look(plot, at)) for at, (one, color) in enumerate(zip(series, colors, strict=True))]
    return Drawn(plot.title, plot.meaning, legend, svg, inside, notes)


def _up(plot: Plot, series: Sequence[Series]) -> Axis:
    if plot.kind == "stack":
        tops = [sum(value for value in column if value is not None) for column in zip(*(s.values for s in series), strict=True)]
        high = 1.0 if plot.unit == "share" else max(tops, default=1.0)
        return linear([0.0, high], HEIGHT - BOTTOM, TOP)
    values = [v for one in series for part in (one.values, one.low, one.high) for v in part if v is not None]
    if plot.log and spans_decades(values):
        return logarithmic(values, HEIGHT - BOTTOM, TOP)
    return linear(values, HEIGHT - BOTTOM, TOP, zero=plot.zero)


def _grid(up: Axis, across: Axis, plot: Plot) -> Markup:
    write = percent if plot.unit == "share" else short
    rows = Markup("").join(
        Markup('<line class="grid" x1="{}" x2="{}" y1="{y}" y2="{y}"/><text x="{}" y="{}" class="end">{}</text>').format(
            LEFT, WIDTH - RIGHT, LEFT - 6, _r((up(tick) or 0) + 4), write(tick), y=_r(up(tick) or 0)
        )
        for tick in up.ticks
    )
    base = HEIGHT - BOTTOM
    columns = Markup("").join(
        Markup('<text x="{}" y="{}" class="middle">{}</text>').format(_r(across(tick) or 0), base + 15, short(tick))
        for tick in across.ticks
    )
    unit = "" if plot.unit == "share" else plot.unit
    labels = Markup('<text x="{}" y="{}" class="end axis">{}</text>').format(WIDTH - RIGHT, HEIGHT - 4, plot.x_unit)
    if unit:
        labels += Markup('<text x="2" y="{}" class="axis">{}</text>').format(HEIGHT - 4, unit)
    return rows + columns + Markup('<line class="base" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
        LEFT, WIDTH - RIGHT, y=base
    ) + labels  # fmt: skip


def _marks(marks: Iterable[float], across: Axis) -> Markup:
    return Markup("").join(
        Markup('<line class="mark" x1="{x}" x2="{x}" y1="{}" y2="{}"><title>gone on with</title></line>').format(
            TOP, HEIGHT - BOTTOM, x=_r(across(mark) or 0)
        )
        for mark in marks
    )


def _lines(plot: Plot, xs: Sequence[float], series: Sequence[Series], colors: Sequence[int], across: Axis, up: Axis) -> Markup:
    parts: list[Markup] = []
    for at, (one, color) in enumerate(zip(series, colors, strict=True)):
        whiskers = plot.kind == "intervals" and len(xs) <= MOST_WHISKERS
        if one.low and not whiskers:
            parts += [_area(edge, f"band c{color}") for edge in _between(xs, one.low, one.high, across, up)]
        points = _places(xs, one.values, across, up)
        runs = _runs(points)
        path = " ".join(_path(run) for run in runs if len(run) > 1)
        parts.append(Markup('<path class="line c{} {}" d="{}"/>').format(color, _look(plot, at), path))
        parts += [_dot(*run[0], color) for run in runs if len(run) == 1 and not whiskers]
        if one.low and whiskers:
            parts.append(_whiskers(xs, one, color, across, up))
    return Markup("").join(parts)


def _whiskers(xs: Sequence[float], one: Series, color: int, across: Axis, up: Axis) -> Markup:
    found = Markup("")
    for x, value, low, high in zip(xs, one.values, one.low, one.high, strict=True):
        if value is None:
            continue
        found += _dot(across(x) or 0, up(value) or 0, color)
        if low is not None and high is not None:
            found += Markup('<path class="line c{}" d="M{x} {}V{}"/>').format(
                color, _r(up(low) or 0), _r(up(high) or 0), x=_r(across(x) or 0)
            )
    return found


def _stack(xs: Sequence[float], series: Sequence[Series], colors: Sequence[int], across: Axis, up: Axis) -> Markup:
    under = [0.0] * len(xs)
    parts: list[Markup] = []
    for one, color in zip(series, colors, strict=True):
        over = [low + (value or 0.0) for low, value in zip(under, one.values, strict=True)]
        known = [value is not None for value in one.values]
        low = [v if k else None for v, k in zip(under, known, strict=True)]
        high = [v if k else None for v, k in zip(over, known, strict=True)]
        if len(xs) <= MOST_BARS:
            parts.append(_bars(xs, low, high, color, across, up))
        else:
            parts += [_area(edge, f"layer c{color}") for edge in _between(xs, low, high, across, up)]
        under = over
    return Markup("").join(parts)


def _bars(
    xs: Sequence[float], low: Sequence[float | None], high: Sequence[float | None], color: int, across: Axis, up: Axis
) -> Markup:
    room = (WIDTH - RIGHT - LEFT) / max(len(xs), 1)
    width = min(max(room * 0.8, 1.5), 24)
    paths = ""
    for x, bottom, top in zip(xs, low, high, strict=True):
        if bottom is None or top is None or top <= bottom:
            continue
        left = min(max((across(x) or 0) - width / 2, LEFT), WIDTH - RIGHT - width)
        paths += f"M{_r(left)} {_r(up(bottom) or 0)}h{_r(width)}V{_r(up(top) or 0)}h{_r(-width)}Z"
    return Markup('<path class="layer c{}" d="{}"/>').format(color, paths)


def _between(
    xs: Sequence[float], low: Sequence[float | None], high: Sequence[float | None], across: Axis, up: Axis
) -> list[str]:
    """The outline of each stretch where both edges are known."""
    lows, highs = _places(xs, low, across, up), _places(xs, high, across, up)
    pairs = [(a, b) if a is not None and b is not None else None for a, b in zip(lows, highs, strict=True)]
    return [_path([a for a, _ in run] + [b for _, b in reversed(run)]) + "Z" for run in _runs(pairs)]


def _area(path: str, kind: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(kind, path)


def _places(xs: Sequence[float], values: Sequence[float | None], across: Axis, up: Axis) -> list[tuple[float, float] | None]:
    places: list[tuple[float, float] | None] = []
    for x, value in zip(xs, values, strict=True):
        right, height = across(x), None if value is None else up(value)
        places.append(None if right is None or height is None else (right, height))
    return places


def _runs(points: Sequence[Point | None]) -> list[list[Point]]:
    """Stretches without a gap."""
    return [
        [point for point in group if point is not None]
        for known, group in itertools.groupby(points, key=lambda point: point is not None)
        if known
    ]


def _look(plot: Plot, at: int) -> str:
    """What tells a series from others beside its colour."""
    return "block" if plot.kind == "stack" else ("", "dashed", "dotted")[min(at, 2)]


def _dot(x: float, y: float, color: int) -> Markup:
    return Markup('<circle class="dot c{}" cx="{}" cy="{}" r="3"/>').format(color, _r(x), _r(y))


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_r(x)} {_r(y)}" for x, y in points)


def _numbers(plot: Plot, xs: Sequence[float], series: Sequence[Series], across: Axis) -> str:
    told: list[dict[str, Any]] = []
    for one in series:
        told.append({"n": one.label, "v": _told(one.values)})
        if one.low and one.high:
            told[-1] |= {"l": _told(one.low), "h": _told(one.high)}
    numbers = {"x": [_whole(x) for x in xs], "p": [_r(across(x) or 0) for x in xs], "s": told, "u": plot.unit, "a": plot.x_unit}
    return json.dumps(numbers, separators=(",", ":"))


def _told(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.4g}") for value in values]


def _whole(x: float) -> float | int:
    return int(x) if float(x).is_integer() else x


def _r(place: float) -> float | int:
    """A place with what a screen can show of it."""
    return _whole(round(place, 1))

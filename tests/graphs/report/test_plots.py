"""Pictures: gaps stay gaps, long runs are thinned out, and nothing that is not finite gets into a path."""

import json
import re
from html import unescape
from typing import Any

import pytest

from graphs.report.plots import BOTTOM, HEIGHT, TOP, Plot, drawn
from graphs.report.series import MOST_POINTS, Series, thinned


def numbers(svg: str) -> dict[str, Any]:
    found = re.search(r'data-plot="([^"]*)"', svg)
    assert found
    return json.loads(unescape(found.group(1)))


def paths(svg: str, kind: str) -> list[str]:
    return re.findall(rf'<path class="{kind}[^"]*" d="([^"]*)"', svg)


def test_a_value_that_is_missing_leaves_a_gap() -> None:
    plot = Plot("Loss", "of the step", [1.0, 2.0, 3.0, 4.0, 5.0], [Series("loss", [1.0, None, 2.0, 3.0, None])])
    svg = str(drawn(plot).svg)
    (line,) = paths(svg, "line")
    assert line.count("M") == 1, "one stretch"
    assert svg.count("<circle") == 1, "and a point of its own"
    assert numbers(svg)["s"][0]["v"] == [1.0, None, 2.0, 3.0, None]


@pytest.mark.parametrize("kind", ["lines", "intervals", "stack"])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_every_kind_of_plot_draws_any_number_of_points(kind: Any, count: int) -> None:
    values = [float(at % 7) if at % 5 else None for at in range(count)]
    low = [None if value is None else value - 0.1 for value in values]
    high = [None if value is None else value + 0.1 for value in values]
    xs, series = [float(at) for at in range(count)], [Series("a", [1.0] * count), Series("b", values, low, high)]
    made = drawn(Plot("A", "of b", xs, series, kind=kind, marks=[0.5]))
    assert "nan" not in made.svg
    assert "None" not in made.svg
    looks = ("block", "block") if kind == "stack" else ("", "dashed")
    assert made.legend == [("a", 0, looks[0]), ("b", 1, looks[1])][: 2 if count > 1 else 1]
    assert 'class="mark"' in made.svg


def test_a_long_series_is_thinned_to_means_with_the_least_and_most_as_a_band() -> None:
    xs = [float(at) for at in range(10_000)]
    series = Series("a", [None if 100 <= at < 400 else float(at % 2) for at in range(10_000)])
    fewer, (one,), width = thinned(xs, [series])
    assert len(fewer) <= MOST_POINTS
    assert fewer[-1] == xs[-1]
    assert None in one.values
    known = [(value, low, high) for value, low, high in zip(one.values, one.low, one.high, strict=True) if value is not None]
    assert all(low == 0.0 and high == 1.0 and value == pytest.approx(0.5, abs=0.1) for value, low, high in known)
    made = drawn(Plot("A", "of b", xs, [series]))
    assert made.notes == [f"each point is the mean of {width} steps, the band their least and most"]
    assert len(made.svg) < 25_000


def test_a_short_series_is_drawn_as_it_is() -> None:
    assert thinned([1.0, 2.0], [Series("a", [1.0, 2.0])]) == ([1.0, 2.0], [Series("a", [1.0, 2.0])], 1)


def test_layers_of_shares_reach_the_top() -> None:
    svg = str(
        drawn(Plot("Ends", "of episodes", [1.0], [Series("a", [0.25]), Series("b", [0.75])], unit="share", kind="stack")).svg
    )
    ((left, right),) = [tuple(re.findall(r"V([\d.]+)", path) for path in paths(svg, "layer"))]
    bottom, top = HEIGHT - BOTTOM, TOP
    assert (float(left[0]), float(right[0])) == (bottom - (bottom - top) / 4, top)


def test_labels_are_text_whatever_is_in_them() -> None:
    made = drawn(Plot("<b>", 'of "x"', [1.0], [Series("</svg><script>", [1.0])]))
    assert "<b>" not in made.svg
    assert "<script" not in made.svg

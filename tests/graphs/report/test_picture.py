"""A picture stands alone: well-formed, all words and colours in it, nothing from elsewhere."""

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from graphs.report.picture import picture
from graphs.report.plots import Plot
from graphs.report.series import Series

HOSTILE = 'a < b & "c" </text><script>\''
PLOT = Plot(
    HOSTILE, HOSTILE, [1.0, 4.0, 16.0], [Series(HOSTILE, [1.0, None, 3.0]), Series("other", [2.0, 2.0, 2.0])], note="said"
)


@pytest.mark.parametrize("kind", ["lines", "intervals", "stack"])
def test_a_picture_is_one_well_formed_file_with_all_of_its_words(kind: Any) -> None:
    text = picture(replace(PLOT, kind=kind))
    root = ElementTree.fromstring(text)
    words = " ".join(part.text or "" for part in root.iter("{http://www.w3.org/2000/svg}text"))
    assert words.count(HOSTILE) == 3, "title, meaning, legend"
    assert {"other", "said", "step"} <= set(words.split())
    assert [part.tag for part in root.iter() if part.tag.endswith("script")] == []


def test_every_colour_of_a_picture_is_in_it_for_light_and_dark_and_nothing_is_fetched() -> None:
    text = picture(PLOT)
    light, dark = (set(re.findall(r"--[a-z0-9]+(?=:)", part)) for part in text.split("@media (prefers-color-scheme: dark)"))
    asked = set(re.findall(r"var\((--[a-z0-9]+)\)", text)) - {"--c"}
    assert asked <= dark
    assert asked <= light
    assert re.findall(r"url\(|@import|href|https?:", text.replace("http://www.w3.org/2000/svg", "")) == []


def test_what_is_below_one_another_does_not_overlap_and_the_file_is_as_high_as_it_needs() -> None:
    long = replace(PLOT, title="word " * 30, meaning="word " * 60, series=[Series("x" * 30, [1.0] * 3) for _ in range(5)])
    heights = [float(re.findall(r'viewBox="0 0 384 (\d+)"', picture(plot))[0]) for plot in (PLOT, long)]
    places = [int(y) for y in re.findall(r"translate\(12 (\d+)\)", picture(long))]
    assert places == sorted(set(places))
    assert heights[1] > heights[0] + 100
    assert places[-1] < heights[1]


def test_one_series_needs_no_legend_and_the_same_plot_gives_the_same_bytes() -> None:
    one = replace(PLOT, series=[Series("alone", [1.0, 2.0, 3.0])])
    assert "alone" not in picture(one)
    assert picture(one) == picture(one)

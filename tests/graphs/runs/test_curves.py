"""Curves of characters: where a value stands, what is averaged, what leaves a gap."""

import math

from graphs.runs.curves import plot, sparkline, thinned


def test_a_line_goes_from_the_lowest_block_to_the_highest_and_leaves_a_gap_for_what_is_not_finite() -> None:
    assert sparkline([0, 1, math.nan, 7, 3.5], 10) == "▁▂ █▅"
    assert sparkline([2.0, 2.0], 10) == "▁▁"
    assert sparkline([], 10) == ""


def test_more_values_than_there_is_room_for_are_averaged_in_order() -> None:
    assert thinned([0, 2, 4, 6], 2) == [1, 5]
    assert thinned([math.inf, math.nan, 4, 6], 2) == [None, 5]
    assert len(sparkline(list(range(1000)), 20)) == 20


def test_a_plot_has_its_first_point_below_and_its_last_above_and_joins_them() -> None:
    """Four dots down and two across in each character: a rise from the bottom left to the top right, by hand."""
    assert plot([0, 1], 1, 1) == [chr(0x2800 + 0x40 + 0x08 + 0x10 + 0x20 + 0x80)]
    assert plot([1, 1, 1, 1], 2, 1) == ["⣀⣀"]
    assert [line.strip("⠀") for line in plot([0, 1], 40, 4)] != ["", "", "", ""]
    assert plot([0, 1], 40, 4)[0][-1] != "⠀"
    rising = plot(list(range(40)), 10, 3)
    assert len(rising) == 3
    assert all(len(line) == 10 for line in rising)
    assert rising[2][0] != "⠀"
    assert rising[0][0] == "⠀"
    assert rising[0][-1] != "⠀"

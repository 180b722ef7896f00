"""Ticks, and numbers in few characters."""

import math

import pytest

from graphs.report.axes import linear, logarithmic, percent, short, spanning, spans_decades


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.35, "0.35"), (1.0, "1"), (12.5, "12.5"), (999.0, "999"), (1234.0, "1,234"), (12_500.0, "12.5k"),
     (3.2e6, "3.2M"), (-4.5e9, "-4.5G"), (3e-7, "3e-7"), (1.24e-4, "1.2e-4"), (-0.05, "-0.05"), (100.0, "100")],
)  # fmt: skip
def test_numbers_are_written_in_few_characters(value: float, text: str) -> None:
    assert short(value) == text


def test_shares_are_written_as_percentages() -> None:
    assert [percent(share) for share in (0.0, 0.00417, 0.355, 1.0)] == ["0%", "0.4%", "35.5%", "100%"]


@pytest.mark.parametrize("values", [[0.0], [5.0], [-1e-9, 1e-9], [0.1, 0.9], [-3.0, 1e6], [1e300, -1e300], []])
def test_ticks_enclose_all_values_and_are_few(values: list[float]) -> None:
    axis = linear(values, 100.0, 0.0)
    assert axis.low < axis.high
    assert all(axis.low <= value <= axis.high for value in values)
    assert 2 <= len(axis.ticks) <= 8
    assert all(0.0 <= (axis(value) or 0.0) <= 100.0 for value in [*values, *axis.ticks])


def test_an_axis_of_ratios_has_powers_of_ten_and_no_place_for_what_is_not_above_0() -> None:
    axis = logarithmic([3e-7, 2e-2], 100.0, 0.0)
    assert (axis.low, axis.high) == (pytest.approx(1e-7), pytest.approx(0.1))
    assert all(math.log10(tick) == pytest.approx(round(math.log10(tick))) for tick in axis.ticks)
    assert axis(0.0) is None
    assert axis(1e-4) == pytest.approx(50.0)
    assert spans_decades([1e-7, 1e-2])
    assert not spans_decades([0.0, 1.0, 2.0])


def test_steps_have_whole_ticks_and_one_step_stands_in_the_middle() -> None:
    assert spanning([1.0, 2.0, 3.0], 0.0, 100.0).ticks == [1.0, 2.0, 3.0]
    assert all(float(tick).is_integer() for tick in spanning([1.0, 10_000.0], 0.0, 100.0).ticks)
    assert spanning([4.0], 0.0, 100.0)(4.0) == 50.0


def test_values_that_are_apart_by_less_than_whole_numbers_have_ticks_too() -> None:
    assert spanning([0.1, 0.2, 0.5], 0.0, 100.0).ticks == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert spanning([1.0, 2.0], 0.0, 100.0).ticks == [1.0, 2.0], "of a half step there is none"

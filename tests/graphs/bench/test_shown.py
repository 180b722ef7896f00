"""Figures in few characters that say the truth, and claims in words."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from graphs.bench import shown
from graphs.bench.experiment import Claim, Column, Table
from graphs.bench.kept import Kept
from graphs.bench.shown import ShownClaim


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "", ""), ("a word", "s", "a word"), (True, "", "yes"), (False, "", "no"), (0, "", "0"), (0.0, "s", "0"),
        (1_234_567, "", "1,234,567"), (12345.678, "", "12,300"), (0.034567, "", "0.0346"), (9.996, "", "10.0"),
        (2.0, "", "2.00"),
        (-12.34, "", "-12.3"), (1.3e-7, "", "1.30e-7"), (2.5e9, "", "2.50e9"), (0.9304, "share", "93.0%"), (1, "share", "100%"),
        (0, "share", "0%"), (math.nan, "s", "nan"), (-math.inf, "", "-inf"), (math.nan, "share", "nan"), (99.95, "", "100"),
        (0.00099996, "", "0.00100"),
    ],
)  # fmt: skip
def test_cells_have_three_digits_and_say_yes_no_or_nothing(value: Any, unit: str, text: str) -> None:
    assert shown.cell(value, unit) == text


def test_a_column_says_how_many_digits_it_shows() -> None:
    assert [shown.cell(0.123456, digits=digits) for digits in (1, 2, 5)] == ["0.1", "0.12", "0.12346"]


@pytest.mark.parametrize(
    ("claim", "got", "wanted", "mark"),
    [
        (Claim("x", 0.962, 0.93), "0.962", "at least 0.93", "holds"),
        (Claim("x", 0.92996, 0.93), "0.92996", "at least 0.93", "does not"),
        (Claim("x", 0.930000001, 0.93), "0.930", "at least 0.93", "holds"),
        (Claim("x", 0.05004, 0.05, "most"), "0.05004", "at most 0.05", "does not"),
        (Claim("x", math.nextafter(0.05, 1), 0.05, "most"), "0.05000000000000001", "at most 0.05", "does not"),
        (Claim("x", 7), "7", "", "no bound"),
        (Claim("x", None, 1.0), "not measured", "at least 1", "does not"),
        (Claim("x", 0, 0, "equal"), "0", "must be 0", "holds"),
        (Claim("x", True, True, "equal"), "yes", "must be yes", "holds"),
        (Claim("x", 0.1 + 0.2, 0.3, "equal"), "0.30000000000000004", "must be 0.3", "does not"),
        (Claim("x", "a" * 40, "a" * 40, "equal"), "a" * 40, "the same", "holds"),
        (Claim("x", "a" * 40, "b" * 40, "equal"), "a" * 40, "must be " + "b" * 40, "does not"),
        (Claim("x", math.nan, 0.5), "nan", "at least 0.5", "does not"),
        (Claim("x", 12_000, 10_000), "12,000", "at least 10,000", "holds"),
    ],
)
def test_a_claim_is_told_with_as_many_digits_as_show_whether_it_holds(claim: Claim, got: str, wanted: str, mark: Any) -> None:
    assert shown.claim(claim) == ShownClaim("x", got, wanted, mark)


def test_claims_are_counted_in_words() -> None:
    claims = [Claim("x", 1, 1), Claim("x", 0, 1), Claim("x", 0, 1), Claim("x", 1)]
    assert shown.counted(claims) == "1 holds, 2 do not, 1 has no bound"
    assert shown.counted(claims[:1] * 3) == "3 hold"
    assert shown.counted([]) == "no claims"


def test_a_table_tells_units_in_its_heads_and_knows_its_numbers() -> None:
    columns = [
        Column("a", "what"),
        Column("b", "rate", "items/s"),
        Column("c", "busy", "share"),
        Column("d", "", "s"),
        Column("e", "e"),
    ]
    rows = [{"a": "x", "b": 1.0, "c": 0.5, "d": None, "e": True}, {"a": "y", "b": None, "c": 1}]
    made = shown.table(Table("rows", columns, rows))
    assert made.heads == ["what", "rate, items/s", "busy", "s", "e"]
    assert made.numeric == [False, True, True, False, False]
    assert made.rows == [["x", "1.00", "50.0%", "", "yes"], ["y", "", "100%", "", ""]]


def test_a_number_that_is_not_finite_is_a_gap_in_a_plot_and_said_below_it(words: Kept) -> None:
    plot = words.findings.plots[0]
    values = [math.nan, math.inf, *list(plot.series[0].values)[2:]]
    broken = msgspec.structs.replace(words, findings=_with_values(words, values))
    (made,) = shown.plots(broken)
    assert list(made.series[0].values[:3]) == [None, None, values[2]]
    assert made.note == "not finite: 2 of the numbers"
    nothing = msgspec.structs.replace(words, findings=_with_values(words, [math.nan] * len(values)))
    assert shown.plots(nothing) == [], "there is nothing to draw"


def _with_values(words: Kept, values: list[float]) -> Any:
    plot = words.findings.plots[0]
    return replace(words.findings, plots=[replace(plot, series=[replace(plot.series[0], values=values)])])


def test_a_machine_tells_its_devices_where_they_are_no_cpu(words: Kept) -> None:
    machine = msgspec.structs.replace(words.machine, cores=2.0, memory_bytes=24 * 2**30, system="Linux x86_64", num_devices=1)
    told = [
        shown.machine(msgspec.structs.replace(words, machine=msgspec.structs.replace(machine, **change)))
        for change in ({}, {"num_devices": 2}, {"backend": "gpu", "device_kind": "Fast 9"})
    ]
    assert told == [
        "2 cores, 24 GiB, Linux x86_64; JAX on cpu",
        "2 cores, 24 GiB, Linux x86_64; JAX on cpu, 2 x cpu",
        "2 cores, 24 GiB, Linux x86_64; JAX on gpu, Fast 9",
    ]

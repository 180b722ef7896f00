"""Findings in the words and figures that people are shown, the same on a terminal, on a page and in a report. No markup."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from graphs.bench.experiment import Cell, Claim, Column, Table
from graphs.bench.kept import Kept
from graphs.report.plots import Plot
from graphs.report.series import Values
from graphs.report.tables import clock

Mark = Literal["holds", "does not", "no bound"]
MARKS: Mapping[bool | None, Mark] = {True: "holds", False: "does not", None: "no bound"}
_DIGITS, _MOST_DIGITS = 3, 17
_FIXED = (1e-4, 1e7)
"""Sizes that are written without a power of ten."""
LONG = 24
"""Characters from which on a text that is equal to the one beside it is not written twice."""
_GIB = 2**30


@dataclass(frozen=True)
class ShownClaim:
    """A claim in words.

    Attributes:
        what: was claimed.
        got: what was measured.
        wanted: the bound; empty for none.
        mark: whether it came out as wanted.
    """

    what: str
    got: str
    wanted: str
    mark: Mark


@dataclass(frozen=True)
class ShownTable:
    """A table in words.

    Attributes:
        title: what each row is.
        heads: of the columns, with their units.
        numeric: whether a column is one of numbers.
        rows: of as many texts; empty where nothing was measured.
        note: said below it; empty for nothing.
    """

    title: str
    heads: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[str]]
    note: str


def cell(value: Cell, unit: str = "", digits: int = _DIGITS) -> str:
    """What stands in a table.

    Args:
        value: measured.
        unit: of its column; ``share`` makes percentages.
        digits: significant ones of what is not a whole number.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "share" and math.isfinite(value):
        return f"{_number(float(value) * 100, digits)}%"
    return f"{value:,}" if isinstance(value, int) else _number(value, digits)


def _number(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    rounded = float(f"{mantissa}e{power}")
    if not _FIXED[0] <= abs(rounded) < _FIXED[1]:
        return f"{mantissa}e{int(power)}"
    return f"{rounded:,.{max(0, digits - 1 - int(power))}f}"


def claim(one: Claim) -> ShownClaim:
    """A claim in words; of a number so many digits that one sees whether it holds."""
    mark = MARKS[one.holds]
    if one.got is None:
        return ShownClaim(one.what, "not measured", _bound(one), mark)
    if one.kind == "equal" and one.wanted is not None:
        got, wanted = _exact(one.got), _exact(one.wanted)
        return ShownClaim(one.what, got, "the same" if got == wanted and len(got) > LONG else f"must be {wanted}", mark)
    return ShownClaim(one.what, cell(one.got, digits=_digits(one)), _bound(one), mark)


def _exact(value: Cell) -> str:
    return repr(value) if isinstance(value, float) else cell(value)


def _bound(one: Claim) -> str:
    if one.wanted is None:
        return ""
    words = {"least": "at least", "most": "at most", "equal": "must be"}[one.kind]
    return f"{words} {one.wanted:,.12g}" if isinstance(one.wanted, float) else f"{words} {cell(one.wanted)}"


def _digits(one: Claim) -> int:
    """Few, unless rounding would tell the opposite: 0.9299 is not 0.930 where 0.93 is the least."""
    if isinstance(one.got, bool) or not isinstance(one.got, float) or one.wanted is None or not math.isfinite(one.got):
        return _DIGITS
    fits = (digits for digits in range(_DIGITS, _MOST_DIGITS)
            if replace(one, got=float(f"{one.got:.{digits - 1}e}")).holds == one.holds)  # fmt: skip
    return next(fits, _MOST_DIGITS)


def table(one: Table) -> ShownTable:
    """A table in words."""
    return ShownTable(
        one.title,
        [head(column) for column in one.columns],
        [_numeric(column, one.rows) for column in one.columns],
        [[cell(row.get(column.name), column.unit, column.digits) for column in one.columns] for row in one.rows],
        one.note,
    )


def head(column: Column) -> str:
    """What stands above a column."""
    return column.head if column.unit in ("", "share") else f"{column.head}, {column.unit}" if column.head else column.unit


def _numeric(column: Column, rows: Iterable[Mapping[str, Cell]]) -> bool:
    values = [value for row in rows if (value := row.get(column.name)) is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def plots(kept: Kept) -> list[Plot]:
    """Those that can be drawn. A number that is not finite is a gap, and the plot says so."""
    return [plot for plot in map(_drawable, kept.findings.plots) if not plot.empty]


def _drawable(plot: Plot) -> Plot:
    values = itertools.chain.from_iterable(one.values for one in plot.series)
    lost = sum(value is not None and not math.isfinite(value) for value in values)
    note = f"not finite: {lost} of the numbers" if lost else ""
    series = [replace(one, values=_gaps(one.values), low=_gaps(one.low), high=_gaps(one.high)) for one in plot.series]
    return replace(plot, series=series, note="; ".join(filter(None, [plot.note, note])))


def _gaps(values: Values) -> Values:
    return [None if value is None or not math.isfinite(value) else value for value in values]


def sentence(words: str) -> str:
    """Words as they begin a line: with a capital."""
    return words[:1].upper() + words[1:]


def counted(claims: Iterable[Claim]) -> str:
    """How many of them hold, in words."""
    marks = Counter(MARKS[one.holds] for one in claims)
    words = {"holds": ("holds", "hold"), "does not": ("does not", "do not"), "no bound": ("has no bound", "have no bound")}
    told = [f"{count} {words[mark][count != 1]}" for mark in words if (count := marks[mark])]
    return ", ".join(told) or "no claims"


def circumstances(kept: Kept) -> list[tuple[str, str]]:
    """What a reader has to know of how findings were made: (what, in words)."""
    versions = ("python", "headrace", "jax", "jaxlib", "numpy")
    return [
        ("command", kept.command),
        ("machine", machine(kept)),
        ("date", f"{datetime.fromisoformat(kept.date):%Y-%m-%d %H:%M} UTC"),
        ("took", clock(kept.seconds)),
        ("load", f"{kept.load:g} before, {kept.load_after:g} after"),
        ("versions", ", ".join(f"{name} {kept.versions[name]}" for name in versions if name in kept.versions)),
    ]


def machine(kept: Kept) -> str:
    """What findings were made on, in words."""
    had = kept.machine
    number = f"{had.num_devices} x " if had.num_devices != 1 else ""
    devices = "" if had.device_kind == had.backend and not number else f", {number}{had.device_kind}"
    return f"{had.cores:g} cores, {had.memory_bytes / _GIB:.0f} GiB, {had.system}; JAX on {had.backend}{devices}"

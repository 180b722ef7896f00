"""Axes of a plot: where their ticks are, how numbers are written on them, and where a value lies. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """A range of values laid on a range of places.

    Attributes:
        low: least value.
        high: most value, above ``low``.
        start: place of ``low``.
        stop: place of ``high``.
        ticks: values that are written on it.
        log: whether equal ratios take equal room.
    """

    low: float
    high: float
    start: float
    stop: float
    ticks: Sequence[float]
    log: bool = False

    def __call__(self, value: float) -> float | None:
        """Where a value lies; ``None`` for one that has no place, as 0 where ratios count."""
        if self.log:
            return None if value <= 0 else self._at(math.log10(value), math.log10(self.low), math.log10(self.high))
        return self._at(value, self.low, self.high)

    def _at(self, value: float, low: float, high: float) -> float:
        return self.start + (value - low) / (high - low) * (self.stop - self.start)


def linear(values: Iterable[float], start: float, stop: float, *, num_ticks: int = 4, zero: bool = False) -> Axis:
    """An axis around values, to whole ticks.

    Args:
        values: finite; none gives 0 to 1.
        start: place of the least.
        stop: place of the most.
        num_ticks: about so many.
        zero: whether it begins at 0 where no value is below.
    """
    known = list(values) or [0.0, 1.0]
    low, high = min(known), max(known)
    if zero and low > 0:
        low = 0.0
    if high - low <= abs(high) * 1e-9:
        low, high = (low - abs(low) * 0.5, high + abs(high) * 0.5) if high else (0.0, 1.0)
    step = _nice((high - low) / num_ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [index * step for index in range(first, last + 1)]
    return Axis(ticks[0], ticks[-1], start, stop, ticks)


def spanning(values: Sequence[float], start: float, stop: float, *, num_ticks: int = 5) -> Axis:
    """An axis from the first to the last of ascending values, with whole numbers for ticks unless values are apart by less."""
    low, high = (values[0], values[-1]) if values else (0.0, 1.0)
    if low == high:
        return Axis(low - 0.5, high + 0.5, start, stop, [low])
    step = _nice((high - low) / num_ticks)
    if high - low >= 2 or all(float(value).is_integer() for value in values):
        step = float(max(1, math.ceil(step)))
    ticks = [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return Axis(low, high, start, stop, ticks)


def logarithmic(values: Iterable[float], start: float, stop: float, *, num_ticks: int = 4) -> Axis:
    """An axis of whole powers of ten around values, of which those above 0 count."""
    known = [value for value in values if value > 0] or [0.1, 1.0]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    high = max(high, low + 1)
    stride = math.ceil((high - low) / num_ticks)
    ticks = [10.0**power for power in range(low, high + 1, stride)]
    return Axis(10.0**low, 10.0**high, start, stop, ticks, log=True)


def spans_decades(values: Iterable[float]) -> bool:
    """Whether values above 0 lie so far apart that only their ratios can be seen."""
    known = [value for value in values if value > 0]
    return bool(known) and max(known) > 100 * min(known)


def short(value: float) -> str:
    """A number in few characters: 12k, 0.35, 3e-7."""
    size = abs(value)
    if size == 0:
        return "0"
    for bound, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= bound:
            scale = 1e3 if letter == "k" else bound
            return f"{_plain(value / scale)}{letter}"
    if size < 1e-3:
        mantissa, power = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(power)}"
    return _plain(value)


def percent(value: float) -> str:
    """A share in few characters: 35%, 0.4%."""
    text = f"{value * 100:.1f}"
    return f"{text.removesuffix('.0')}%"


def _plain(value: float) -> str:
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 4
    text = f"{value:,.{decimals}f}" if decimals < 4 else f"{value:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _nice(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return power * next(step for step in _STEPS if size <= step * power * (1 + 1e-9))

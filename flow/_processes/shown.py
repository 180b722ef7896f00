"""What user code hands to spans, counters and moments in a process, made such that it can cross to the run.

Whatever it is, it costs no more than itself: neither the attempt nor the process fails for something that is only shown. How it
looks in the trace is the same as of a stage beside the loop.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..trace._wire import number_of, text_of


def plain_text(value: object) -> str:
    """Text in UTF-8; of what is none, what it reads as."""
    return text_of(value).decode()


def plain_number(value: object) -> float:
    """NaN where it is no number or beyond all of them."""
    return number_of(value)


def plain_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """Text, booleans, floats, and integers of 64 bits with a sign; all else as text."""
    return {plain_text(name): value if _crosses(value) else plain_text(value) for name, value in args.items()}


def plain_flows(flows: Sequence[int]) -> tuple[int, ...]:
    """Numbers of arrows; none where one of them is none."""
    try:
        numbers = tuple(flows)
    except TypeError:
        return ()
    return numbers if all(number.__class__ is int and 0 <= number < 2**64 for number in numbers) else ()


def _crosses(value: object) -> bool:
    if value.__class__ is int:
        return -(2**63) <= value < 2**63  # type: ignore[operator]
    return value.__class__ in (bool, float)

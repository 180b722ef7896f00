"""What a process tells of its spans, and where that is put. Here both ends are in one; ``test_spans`` has real processes."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

import flow
from flow._spans import listening
from flow.elsewhere import MOST_SHOWN, Hearer, Shown, Teller


class Noted:
    """A listener that notes what it is given."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def strand(self):
        return "here"

    def opens(self, strand, at_s, opens):
        self.told.append((opens.name, strand, at_s))
        return opens.name

    def closes(self, opened, at_s):
        self.told.append((f"/{opened}", None, at_s))

    def happens(self, strand, at_s, happens):
        self.told.append((happens.name, strand, at_s))

    def stands(self, at_s, name, value, unit):
        self.told.append((name, value, at_s))

    def leaves_out(self, strand, at_s, count):
        self.told.append((count, strand, at_s))


def heard(noted: Noted, *works: Callable[[], None], call: int = 1) -> tuple[float, float]:
    """Have each work in another call of one process, through a process between; gives when it began and ended."""

    async def main() -> tuple[float, float]:
        began_s = time.monotonic()
        hearers: list[Hearer] = []
        outer = Teller(lambda shown: outer_hearer.hear(shown))
        inner = Teller(lambda shown: hearers[-1].hear(shown))
        with listening(noted):
            outer_hearer = Hearer(call)
        with outer.telling(outer_hearer.call):
            for number, work in enumerate(works):
                hearers.append(Hearer(number))
                with inner.telling(hearers[-1].call, anew=not number):
                    work()
                hearers[-1].end()
        outer_hearer.end()
        return began_s, time.monotonic()

    return asyncio.run(main())


def test_what_a_process_of_a_process_shows_arrives_with_its_nesting_and_its_times():
    noted, between = Noted(), list[float]()

    def work() -> None:
        with flow.span("outer"):
            with flow.span("inner", number=3):
                flow.mark("half")
            flow.count("found", 2)
            between.append(time.monotonic())

    began_s, ended_s = heard(noted, work)
    names, strands, times = zip(*noted.told, strict=True)
    assert names == ("outer", "inner", "half", "/inner", "found", "/outer")
    assert strands == ("here", "here", "here", None, 2.0, None)
    assert [began_s, *times[:5], between[0], times[5], ended_s] == sorted([began_s, *times, between[0], ended_s])


def test_what_is_left_out_is_counted_once_at_whatever_bound():
    """Each process has the bound, and the outer one has its room taken by the inner one."""
    noted = Noted()

    def many() -> None:
        for _ in range(MOST_SHOWN - 10):
            flow.mark("many")

    def more() -> None:
        for _ in range(20):
            with flow.span("more"):
                pass

    heard(noted, many, more)
    names = [name for name, _, _ in noted.told]
    assert (names.count("many"), names.count("more"), names.count("/more")) == (MOST_SHOWN - 10, 10, 10)
    assert [name for name in names if isinstance(name, int)] == [10]


def test_times_of_another_clock_are_put_within_the_call():
    """As of a process that was moved to a namespace of time: a time before the attempt, or after now, would break the trace."""
    noted = Noted()

    async def main() -> list[float]:
        times = [time.monotonic()]
        with listening(noted):
            hearer = Hearer(0)
        told: list[Shown] = []
        with Teller(told.append).telling(0), flow.span("early"):
            flow.mark("late")
        opened, happened, closed = told
        times.append(time.monotonic())
        for shown, off_s in ((opened, -1e6), (happened, 1e6), (closed, 2e6)):
            hearer.hear(msgspec.structs.replace(shown, at_s=shown.at_s + off_s))
        return [*times, time.monotonic()]

    before_s, called_s, after_s = asyncio.run(main())
    (_, _, early_s), (_, _, late_s), (_, _, closed_s) = noted.told
    assert before_s <= early_s <= called_s <= late_s <= closed_s <= after_s


def test_what_is_told_after_the_call_or_of_another_is_dropped_and_what_is_open_ends():
    noted = Noted()

    async def main() -> None:
        told: list[Shown] = []
        teller = Teller(told.append)
        with listening(noted):
            hearer = Hearer(7)
        with teller.telling(6):
            flow.mark("of another")
        with teller.telling(7):
            flow.span("left open").__enter__()
            flow.mark("too late")
        for shown in told[:2]:
            hearer.hear(shown)
        hearer.end()
        hearer.hear(told[2])

    asyncio.run(main())
    assert [name for name, _, _ in noted.told] == ["left open", "/left open"]

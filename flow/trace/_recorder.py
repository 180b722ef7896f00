"""What a run may record: tracks, slices, instants, counters. A protocol only; whoever has none to call passes ``None`` around.

The engine calls these between two steps of the loop, so an implementation only notes the event and works later.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

import msgspec

Argument: TypeAlias = str | int | float | bool
"""What the details of a slice may be."""


About: TypeAlias = Callable[[Any], tuple[str, Sequence[int], Mapping[str, Argument]]]
"""Tells of the key of a slice its name, flows and args."""


class Opens(msgspec.Struct, eq=False):
    """A mark of a series: a slice begins inside the one that is open, and ends with it at the latest."""

    name: str
    args: Mapping[str, Argument] | None = None
    flows: Sequence[int] = ()


class Happens(msgspec.Struct, eq=False):
    """A mark of a series: something without a length."""

    name: str
    args: Mapping[str, Argument] | None = None
    flows: Sequence[int] = ()


class Closes(Enum):
    """The class of ``CLOSES``."""

    CLOSES = "closes"


CLOSES: Final = Closes.CLOSES
"""A mark of a series: what was opened last inside the slice ends."""


class Recorder(Protocol):
    """Somewhere to record what took time. Times are nanoseconds of one monotonic clock.

    A track shows one thing at a time: slices on it nest, and its times never go back. Work that overlaps takes tracks from
    ``Lanes``. Calls for different tracks may come from different threads; those for one track come in order.
    """

    def track(self, name: str, parent: int | None = None, *, rank: int = 0) -> int:
        """A track for slices and instants, declared at the first call and the same at every later one.

        Args:
            name: what the viewer shows; unique under its parent.
            parent: the track it is shown under, ``None`` for the root.
            rank: position among its siblings, smallest first.

        Returns:
            The track's number.
        """
        ...

    def counter(self, name: str, unit: str = "", parent: int | None = None) -> int:
        """A track for numbers over time, declared at the first call and the same at every later one."""
        ...

    def begin(
        self, track: int, name: str, at_ns: int, args: Mapping[str, Argument] | None = None, flows: Sequence[int] = ()
    ) -> None:
        """Open a slice.

        Args:
            track: from ``track``.
            name: one of few: the details of an item go into ``args``.
            at_ns: time of the opening.
            args: kept, not copied: do not change it afterwards.
            flows: numbers from 0 to 2**64 - 1; the viewer draws an arrow through all events that carry the same one.
        """
        ...

    def end(self, track: int, at_ns: int, args: Mapping[str, Argument] | None = None) -> None:
        """Close the slice opened last on the track. Closing what was not opened is a fault of the caller.

        Args:
            track: from ``track``.
            at_ns: time of the end.
            args: what became known of it meanwhile; kept.
        """
        ...

    def series(self, track: int, marks: Sequence[Any], about: About) -> None:
        """Slices that follow on each other, where a call for each would cost more than what it measures.

        The slice that is open after one call is ended by the first mark of the next. Slices from ``begin`` may lie inside.

        Args:
            track: from ``track``.
            marks: in turn a time in seconds and what begins then, ``None`` for nothing; or ``Opens``, ``CLOSES`` and
                ``Happens`` for what lies inside it. Kept.
            about: gives name, flows and args of what begins. Called later, on another thread, and of text not each time.
        """
        ...

    def instant(
        self, track: int, name: str, at_ns: int, args: Mapping[str, Argument] | None = None, flows: Sequence[int] = ()
    ) -> None:
        """Something without a length. Arguments as for ``begin``."""
        ...

    def count(self, track: int, value: float, at_ns: int) -> None:
        """The value of a counter from this time on."""
        ...

"""What a trace says, read back: tracks, the slices of each as columns, moments, counters. How it is read is in ``_assembly``.

A trace may hold millions of slices, so they are kept as columns (name, start, end, depth of each), and what is asked for
rarely, details and arrows, is looked up in the bytes of the file when it is asked for. ``Slice`` and its kin are made on
demand.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, overload

import msgspec

from ._recorder import Argument

OPEN = -1
"""The end of a slice that the trace does not know of."""

Details: TypeAlias = tuple[dict[str, Argument], tuple[int, ...]]
"""Args and flows."""


class TraceError(ValueError):
    """The file is no trace, or one that breaks its own rules."""


class Track(msgspec.Struct, frozen=True):
    """A row of the viewer."""

    number: int
    name: str
    parent: int | None
    """``None`` for the root."""
    kind: Literal["slices", "counter"]
    unit: str = ""
    rank: int = 0


class Slice(msgspec.Struct, frozen=True):
    """Something that took time."""

    track: int
    name: str
    start_ns: int
    end_ns: int | None
    """``None`` where the trace ends before the slice does."""
    depth: int
    """Slices of the same track it lies in."""
    args: dict[str, Argument] = {}
    flows: tuple[int, ...] = ()


class Instant(msgspec.Struct, frozen=True):
    """Something that happened."""

    track: int
    name: str
    at_ns: int
    args: dict[str, Argument] = {}
    flows: tuple[int, ...] = ()


class Count(msgspec.Struct, frozen=True):
    """A counter's value from a time on."""

    track: int
    at_ns: int
    value: float


class Spans(Sequence[Slice]):
    """The slices of one track, by the time they were begun.

    Attributes:
        track: number of the track.
        names: of each slice; equal names are one object.
        starts_ns: when each began.
        ends_ns: when each ended, ``OPEN`` where the trace ends before it does.
        depths: slices of the track that each lies in.
    """

    __slots__ = ("_look_up", "depths", "ends_ns", "names", "places", "starts_ns", "track")

    def __init__(self, track: int, look_up: Callable[[int], Details]) -> None:
        self.track, self._look_up = track, look_up
        self.names: list[str] = []
        self.starts_ns, self.ends_ns, self.depths, self.places = array("q"), array("q"), array("H"), array("q")

    def args(self, index: int) -> dict[str, Argument]:
        """Details of a slice. Do not change them: slices that say the same share them."""
        return self._look_up(self.places[index])[0]

    def flows(self, index: int) -> tuple[int, ...]:
        """Numbers of the arrows through a slice."""
        return self._look_up(self.places[index])[1]

    def begun_at(self, starts_ns: Sequence[int]) -> "Spans":
        """The same slices with other beginnings, in the same order."""
        moved = Spans(self.track, self._look_up)
        moved.names, moved.ends_ns, moved.depths, moved.places = self.names, self.ends_ns, self.depths, self.places
        moved.starts_ns = array("q", starts_ns)
        return moved

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Slice: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Slice, ...]: ...
    def __getitem__(self, index: int | slice) -> Slice | tuple[Slice, ...]:
        if isinstance(index, slice):
            return tuple(self[each] for each in range(*index.indices(len(self))))
        end_ns = self.ends_ns[index]
        args, flows = self._look_up(self.places[index])
        return Slice(
            self.track, self.names[index], self.starts_ns[index], None if end_ns == OPEN else end_ns, self.depths[index], args,
            flows,
        )  # fmt: skip


class Values:
    """What a counter stood at: ``values[i]`` from ``at_ns[i]`` on."""

    __slots__ = ("at_ns", "values")

    def __init__(self) -> None:
        self.at_ns, self.values = array("q"), array("d")

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self.at_ns, self.values, strict=True)

    def __len__(self) -> int:
        return len(self.at_ns)


class Gap(msgspec.Struct, frozen=True):
    """A time of which a trace says nothing, but for the slices that were open before and after it."""

    start_ns: int
    end_ns: int
    missing: tuple[str, ...] = ()
    """Names of the files that are gone; none where no process was there: between two starts of a run."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A whole trace.

    Attributes:
        tracks: by number.
        spans: slices by number of their track; a track of slices without any has none of them.
        counters: values by number of their track.
        instants: in the order of the file.
        wall_offset_ns: add it to a time of the trace to get nanoseconds since the epoch.
        gaps: times of which it says nothing, in order.
        torn_bytes: bytes at the end that are no whole packet: above 0 where the writer was killed while it wrote.
    """

    tracks: Mapping[int, Track]
    spans: Mapping[int, Spans]
    counters: Mapping[int, Values]
    instants: tuple[Instant, ...]
    wall_offset_ns: int
    torn_bytes: int
    gaps: tuple[Gap, ...] = ()

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """All slices, by the time they were begun: for short traces, as it makes an object of each."""
        return tuple(sorted((each for spans in self.spans.values() for each in spans), key=lambda each: each.start_ns))

    @cached_property
    def counts(self) -> tuple[Count, ...]:
        """All values of counters, by time: for short traces, as it makes an object of each."""
        counts = (Count(track, at_ns, value) for track, values in self.counters.items() for at_ns, value in values)
        return tuple(sorted(counts, key=lambda each: each.at_ns))

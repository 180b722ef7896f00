"""Reads from a trace what the engine and the trainer took: steps by kind and size, spans by name. No graph, no clock."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np

from flow.trace import OPEN, Spans, Trace

QUICK = 0.25
"""Share of the times that are shorter than what counts as time without others in the way."""


class Window(NamedTuple):
    """A part of a trace, with the processor time that this process took in it.

    Attributes:
        began_ns: of the trace.
        ended_ns: of the trace.
        processor_s: of all threads.
    """

    began_ns: int
    ended_ns: int
    processor_s: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.ended_ns - self.began_ns) / 1e9


@dataclass(frozen=True)
class Steps:
    """Steps of an engine of one kind and size that follow on each other."""

    kind: str
    rows: int
    began_ns: int
    ended_ns: int
    count: int
    busy_s: float


def engine_steps(trace: Trace, window: Window, track: str = "engine") -> Sequence[Steps]:
    """The steps of an engine inside a window, in order."""
    found: list[Steps] = []
    for spans, index in _inside(trace, window, track):
        name = spans.names[index]
        if name in ("prefill", "decode"):
            args = spans.args(index)
            found.append(
                Steps(
                    name, int(args["rows"]), spans.starts_ns[index], spans.ends_ns[index], int(args["steps"]),
                    int(args["busy_us"]) / 1e6,
                )
            )  # fmt: skip
    return sorted(found, key=lambda each: each.began_ns)


def seconds_of(trace: Trace, window: Window, track: str, name: str, key: str | None = None) -> Mapping[str, list[float]]:
    """Seconds of each span of a name on a track inside a window, by a detail of it; all together where none is asked for."""
    found = defaultdict[str, list[float]](list)
    for spans, index in _inside(trace, window, track):
        if spans.names[index] == name:
            by = "" if key is None else str(spans.args(index).get(key, ""))
            found[by].append((spans.ends_ns[index] - spans.starts_ns[index]) / 1e9)
    return found


def step_seconds(steps: Sequence[Steps]) -> Mapping[tuple[str, int], float]:
    """Seconds of a step by kind and rows, with what the host does until the next one: of the quick ones, see ``quick``."""
    busy = defaultdict[tuple[str, int], list[float]](list)
    for each in steps:
        busy[each.kind, each.rows].append(each.busy_s / each.count)
    host_s = host_seconds(steps)
    return {key: quick(seconds) + host_s for key, seconds in busy.items()}


def host_seconds(steps: Sequence[Steps]) -> float:
    """Seconds from one step to the next while there is something to do, of the quick ones; 0 where that cannot be seen."""
    inside = [((each.ended_ns - each.began_ns) / 1e9 - each.busy_s) / (each.count - 1) for each in steps if each.count > 1]
    between = [
        (after.began_ns - before.ended_ns) / 1e9
        for before, after in itertools.pairwise(steps)
        if before.kind == after.kind == "decode" and before.rows == after.rows
    ]
    return quick([*inside, *between]) if inside or between else 0.0


def quick(seconds: Sequence[float]) -> float:
    """What something takes when nobody else is in its way: a quarter of all times are shorter.

    Other processes, and a collection of garbage, make some times longer and none shorter.
    """
    return float(np.quantile(seconds, QUICK))


def node_seconds(trace: Trace, window: Window, nodes: Sequence[str]) -> Mapping[str, float]:
    """Mean seconds of an item of each of these nodes of a graph inside a window; nodes without any are left out."""
    found = defaultdict[str, list[float]](list)
    for number, spans in trace.spans.items():
        name, _, index = trace.tracks[number].name.rpartition("/")
        if name in nodes and index.isdecimal():
            for at in range(len(spans)):
                if spans.names[at] == name and not spans.depths[at] and _is_in(spans, at, window):
                    count = int(spans.args(at).get("items", 1))
                    found[name] += [(spans.ends_ns[at] - spans.starts_ns[at]) / 1e9 / count] * count
    return {name: fmean(seconds) for name, seconds in found.items()}


def _inside(trace: Trace, window: Window, track: str) -> Iterator[tuple[Spans, int]]:
    for number, spans in trace.spans.items():
        if trace.tracks[number].name == track:
            yield from ((spans, index) for index in range(len(spans)) if _is_in(spans, index, window))


def _is_in(spans: Spans, index: int, window: Window) -> bool:
    end = spans.ends_ns[index]
    return end != OPEN and window.began_ns <= spans.starts_ns[index] and end <= window.ended_ns

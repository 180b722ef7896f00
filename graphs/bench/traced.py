"""Runs a graph with a trace and gives what experiments read of it: its summary, its trace, and what was scored and trained."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from flow import Graph, Plan, Run, Summary
from flow.explain import GraphVerdict, explain
from flow.trace import OPEN, PerfettoWriter, Trace, read_trace
from graphs.bench.model.measured import Judged, judged
from stages.records import Group
from stages.rollout.statistics import EngineStatistics

Intervals = Sequence[tuple[int, int]]
"""From when to when, ns."""


class Counts(Protocol):
    """An engine that tells what it has done."""

    def statistics(self) -> EngineStatistics:
        """Counters since it opened."""
        ...


@dataclass
class Scored:
    """A watcher that notes the groups that were scored.

    Attributes:
        tasks: id of the task by birth number.
        sizes: members that left an episode which did not fail, by birth number.
    """

    tasks: dict[int, str] = field(default_factory=dict[int, str])
    sizes: dict[int, int] = field(default_factory=dict[int, int])

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Note groups that left the rewards."""
        for group in values if node == "rewards" else ():
            assert isinstance(group, Group)
            self.tasks[group.birth] = group.episodes[0].task.id
            self.sizes[group.birth] = sum(episode.status.rule.completes for episode in group.episodes)

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Traced:
    """A run that is over.

    Attributes:
        plan: what ran.
        summary: its counts.
        trace: of it alone.
        scored: its groups.
        rows: what the trainer reported of each step.
        engine_s: seconds in which the engine made steps; ``None`` where none was looked at.
    """

    plan: Plan
    summary: Summary
    trace: Trace
    scored: Scored
    rows: Sequence[Mapping[str, Any]] = ()
    engine_s: float | None = None

    @cached_property
    def judged(self) -> Judged:
        """Beside the event model."""
        return judged(self.plan, self.trace)

    @cached_property
    def verdict(self) -> GraphVerdict:
        """What ``flow.explain`` says of it."""
        return explain(self.trace).graphs[0]

    @property
    def seconds(self) -> float:
        """From the beginning to the end of the last step."""
        return self.judged.measured.run_s

    @property
    def num_groups(self) -> int:
        """Complete groups that were trained."""
        return len(self.judged.measured.trained)

    @property
    def groups_per_minute(self) -> float:
        """Complete groups that were trained, over the time up to the last step."""
        return 60 * self.num_groups / self.seconds

    @property
    def model_groups_per_minute(self) -> float:
        """The same of the event model."""
        return 60 * self.num_groups / self.judged.model.seconds

    @property
    def trained_tasks(self) -> list[str]:
        """Ids of the tasks in the order in which they were trained. Groups are born in the order of their source."""
        return [self.scored.tasks[path[0]] for path in self.judged.measured.trained]

    def idle_share(self, node: str = "trainer") -> float:
        """Share of the time up to the last step in which a node with one worker did not work."""
        worked = union((s, e) for s, e in self._spans(node) if s < self.judged.measured.ended_ns)
        return 1.0 - worked / (self.judged.measured.ended_ns - self.judged.measured.began_ns)

    @property
    def engine_busy(self) -> float | None:
        """Share of the time in which the engine made a step, or an engine by script had a turn to say; ``None`` without one."""
        return None if self.engine_s is None else self.engine_s / self.seconds

    def groups_open(self) -> Intervals:
        """From when to when each group was open, by the time it was opened; one that was not closed, to the end of the run."""
        return sorted((start, min(end, self.judged.measured.ended_ns)) for start, end in self._slices("group"))

    @property
    def oldest_group_s(self) -> float:
        """Longest time that a group was open."""
        return max(end - start for start, end in self.groups_open()) / 1e9

    @property
    def played_s(self) -> float:
        """Mean time from the dispatch of a group's first episode until its last one is done."""
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        for birth, start, end in self._episodes():
            begins[birth], ends[birth] = min(start, begins.get(birth, start)), max(end, ends.get(birth, end))
        return sum(ends[birth] - begins[birth] for birth in ends) / len(ends) / 1e9

    def counter(self, name: str) -> Sequence[tuple[float, float]]:
        """Seconds since the beginning and value of a counter, each time that it changed; empty for one that is not there."""
        begin = self.judged.measured.began_ns
        return [
            ((at_ns - begin) / 1e9, value)
            for number, values in self.trace.counters.items()
            if self.trace.tracks[number].name == name
            for at_ns, value in values
        ]

    def _spans(self, node: str) -> Iterator[tuple[int, int]]:
        """Work of the workers of a node."""
        for number, spans in self.trace.spans.items():
            if self.trace.tracks[number].name == f"{node}/0":
                for index, name in enumerate(spans.names):
                    if name == node and not spans.depths[index]:
                        yield spans.starts_ns[index], spans.ends_ns[index]

    def _episodes(self) -> Iterator[tuple[int, int, int]]:
        """Birth number of the group, begin and end of each attempt at an episode that came to its end."""
        for number, spans in self.trace.spans.items():
            if re.fullmatch(r"episodes/\d+", self.trace.tracks[number].name):
                for index in range(len(spans)):
                    args = spans.args(index)
                    if not spans.depths[index] and "birth" in args and spans.ends_ns[index] != OPEN:
                        yield int(args["birth"]), spans.starts_ns[index], spans.ends_ns[index]

    def _slices(self, name: str) -> Iterator[tuple[int, int]]:
        end = self.judged.measured.ended_ns
        for spans in self.trace.spans.values():
            for index, found in enumerate(spans.names):
                if found == name:
                    yield spans.starts_ns[index], end if spans.ends_ns[index] == OPEN else spans.ends_ns[index]


class _Rows:
    """A watcher that keeps what the trainer reports."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Nothing."""

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Keep it."""
        if node == "trainer":
            self.rows.append(row)


async def traced(graph: Graph, path: Path, engine: Counts | None = None, watchers: Sequence[Any] = ()) -> Traced:
    """Run a graph to its end.

    Args:
        graph: of reinforcement learning, as ``graphs.rl`` declares it.
        path: the file of its trace; one that exists is replaced.
        engine: that it samples from, open, to be asked how busy it was.
        watchers: that look on besides, as those of a run.
    """
    plan, scored, rows = graph.build(quiet=True), Scored(), _Rows()
    before = _steps_s(engine)
    with PerfettoWriter(path) as recorder:
        summary = await Run(plan, recorder=recorder, watchers=(scored, rows, *watchers)).finish()
    after = _steps_s(engine)
    busy = None if before is None or after is None else after - before
    return Traced(plan, summary, read_trace(path), scored, rows.rows, busy)


def _steps_s(engine: Counts | None) -> float | None:
    told = None if engine is None else engine.statistics()
    return None if told is None else told.prefill_s + told.decode_s


def union(pairs: Iterator[tuple[int, int]]) -> int:
    """Time in which at least one of these intervals was open, ns."""
    covered, until = 0, 0
    for start, end in sorted(pairs):
        covered += max(0, end - max(start, until))
        until = max(until, end)
    return covered

"""What ``explain`` finds, as records: the schema of ``headrace trace --json``. Times in seconds, shares from 0 to 1."""

from typing import Literal

import msgspec

Kind = Literal["stage", "source", "sink", "pool", "tickets", "load", "compile"]
"""What can bound a graph: a node, by the time it takes; units of a pool; tickets, by how many steps may be under way; the load
of a cell; compiling."""


class Lever(msgspec.Struct, frozen=True):
    """Something that can be widened, and what that would bring.

    Attributes:
        kind: see ``Kind``.
        name: of the node, pool or cell.
        share: of the critical path that lies there; of tickets, of the time that the sink waited.
        gain: throughput gained by half the time, twice the units, or one step more under way: 0.5 is half as much again.
        most: the same with no time at all, or without bound; ``None`` where it was not asked.
    """

    kind: Kind
    name: str
    share: float
    gain: float
    most: float | None = None


class Part(msgspec.Struct, frozen=True):
    """A part of some time, by what it went to.

    Attributes:
        kind: ``work`` of a node, its ``commit`` of a step, ``compile`` in it, ``load`` of a cell, ``sync wait`` of a load, wait
            for a ``pool``, for ``room``, ``hand-over`` before a node, which nothing explains, ``start``, before anything.
        name: of the node, pool or cell.
        seconds: its length.
        share: of the whole.
    """

    kind: str
    name: str
    seconds: float
    share: float


class Leg(msgspec.Struct, frozen=True):
    """A part of the way of one step.

    Attributes:
        kind: as in ``Part``.
        name: as in ``Part``.
        item: what was worked on; empty where that has no name.
        worker: its number in the node; 0 for a load.
        seconds: its length.
    """

    kind: str
    name: str
    item: str
    worker: int
    seconds: float


class Stage(msgspec.Struct, frozen=True):
    """A node.

    Attributes:
        name: its name.
        workers: its workers.
        attempts: pieces of work.
        rate: of these, per second.
        work: share of the workers' time, as are the following, which add up to 1.
        input: waiting for something to take.
        ticket: waiting to open a group.
        pool: waiting for units of pools, before an attempt or inside it.
        room: waiting for room behind it.
        pools: the waits for pools by pool.
    """

    name: str
    workers: int
    attempts: int
    rate: float
    work: float
    input: float
    ticket: float
    pool: float
    room: float
    pools: dict[str, float]


class Stragglers(msgspec.Struct, frozen=True):
    """Groups, and those of them that waited for one member.

    Attributes:
        groups: that closed.
        waiting: of these, whose last member came later than the one before by over a quarter of the time the group took.
        seconds: that they waited for it, in all.
        share: of the time that all groups took.
        worst: the longest of these waits: item, and seconds.
    """

    groups: int
    waiting: int
    seconds: float
    share: float
    worst: tuple[tuple[str, float], ...]


class Asked(msgspec.Struct, frozen=True):
    """Time of something that serves others, such as an engine.

    Attributes:
        name: of its track.
        busy: share of the time by what it did.
        asked: idle although somebody waited for an answer.
        loading: idle while nobody asked and a version was loaded.
        elsewhere: idle while attempts were under way and none asked.
        nothing: idle while no attempt was under way.
    """

    name: str
    busy: dict[str, float]
    asked: float
    loading: float
    elsewhere: float
    nothing: float


class Slow(msgspec.Struct, frozen=True):
    """Work of one name, by how long it took.

    Attributes:
        where: node or track.
        name: of the slices; that of the node for its attempts.
        detail: an argument and its value, where slices were told apart by one; else empty.
        count: slices.
        seconds: in all.
        p50: median.
        p90: quantile.
        p99: quantile.
        most: the longest.
    """

    where: str
    name: str
    detail: str
    count: int
    seconds: float
    p50: float
    p90: float
    p99: float
    most: float


class Compiled(msgspec.Struct, frozen=True):
    """Where something was compiled.

    Attributes:
        where: node or track.
        count: times.
        seconds: in all.
        again: of these times, those after the first step of a graph.
        again_s: seconds of those.
    """

    where: str
    count: int
    seconds: float
    again: int
    again_s: float


class Level(msgspec.Struct, frozen=True):
    """A counter during an execution.

    Attributes:
        name: of the counter.
        unit: of its values.
        mean: over the time.
        most: the largest value.
    """

    name: str
    unit: str
    mean: float
    most: float


class GraphVerdict(msgspec.Struct, frozen=True):
    """One execution of a graph.

    Attributes:
        graph: its name.
        start: seconds since the trace began.
        seconds: its length.
        sink: the node it is there for.
        steps: steps of it, or things it took.
        step: median time of a step.
        bound: what bounded it; ``None`` where nothing was worked on.
        runners_up: what else would bring something, the most first.
        experiments: what more workers would bring, by node: as ``gain`` of a lever.
        stages: every node, from the sources on.
        path: the critical path by what lies on it, the most first.
        way: that of the step of median length, from its beginning to its end; empty where the sink collects none.
        way_step: number of that step, from 1; 0 without one.
        idle: share of the time that the sink waited.
        idle_by: what it waited for in the end.
        stragglers: ``None`` where there are no groups.
        asked: those that serve others.
        levels: counters, its own and those of who serves it.
        dropped: counts by reason.
        retried: counts by kind of error.
        overdue: attempts past their deadline by node.
        stalls: what the stall watch said.
        piece: its number, from 1, among those that times unseen cut one execution into.
        pieces: how many these are; each is judged by itself.
    """

    graph: str
    start: float
    seconds: float
    sink: str
    steps: int
    step: float
    bound: Lever | None
    runners_up: tuple[Lever, ...]
    experiments: dict[str, float]
    stages: tuple[Stage, ...]
    path: tuple[Part, ...]
    way: tuple[Leg, ...]
    way_step: int
    idle: float
    idle_by: tuple[Part, ...]
    stragglers: Stragglers | None
    asked: tuple[Asked, ...]
    levels: tuple[Level, ...]
    dropped: dict[str, int]
    retried: dict[str, int]
    overdue: dict[str, int]
    stalls: tuple[str, ...]
    piece: int = 1
    pieces: int = 1


class Unseen(msgspec.Struct, frozen=True):
    """A time of which the trace says nothing.

    Attributes:
        start: seconds after the trace began.
        seconds: its length.
        missing: names of the files that are gone; empty where no process was there, between two starts of a run.
    """

    start: float
    seconds: float
    missing: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """A whole trace.

    Attributes:
        seconds: from the first slice to the last.
        slices: their number.
        graphs: executions, in order of time.
        slow: work by name, that which took the most time in all first.
        compiled: where something was compiled, the longest first.
        left_out: events that the trace lacks, because there was no room for them.
        unseen: times of which it says nothing.
    """

    seconds: float
    slices: int
    graphs: tuple[GraphVerdict, ...]
    slow: tuple[Slow, ...]
    compiled: tuple[Compiled, ...]
    left_out: int
    unseen: tuple[Unseen, ...] = ()

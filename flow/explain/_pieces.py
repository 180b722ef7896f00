"""What happened in one execution of a graph: pieces of work with the waits before them, and loads. All else works on these.

An execution is the time in which workers of a graph were open: phases of a program may run graphs of one name, and a run that
was started again has them once more. ``_apart`` makes them of a trace.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..trace import Argument, Instant

_POOL, _HELD, _UNITS = "pool ", " held", " units"
SLACK_NS = 1_000_000
"""What comes of a piece may be taken just before its slice ends: both are noted one after the other."""


TURN = "its turn"
"""What a worker that keeps order waits for room for: another of its own node."""


def pools_of(what: str) -> list[str]:
    """Names of the pools that were waited for together."""
    return what.replace(" and ", ", ").split(", ")


class Wait(NamedTuple):
    """A worker waited: for what (``input``, ``ticket``, ``pool``, ``room``), for which, from when to when (ns)."""

    kind: str
    what: str
    start: int
    end: int


class Hold(NamedTuple):
    """A permit was held that was taken inside the work: of which pool, how many units, from when to when (ns)."""

    pool: str
    units: int
    start: int
    end: int


class Interval(NamedTuple):
    """Whose it was, and from when to when (ns)."""

    where: str
    start: int
    end: int


@dataclass(eq=False, slots=True)
class Piece:
    """One worker at work on one thing without a break, or one load of a cell.

    Attributes:
        node: whose work; for a load, the cell.
        lane: number of the worker in its execution.
        start: ns.
        end: ns.
        flows: arrows through it.
        args: details.
        waits: of the same worker, since its piece before.
        before: that piece; ``None`` for the first.
        room: end of the wait for room behind it, at which others see what it made.
        room_of: edge on which it waited for that; empty where it did not.
        sources: pieces that made what this one took.
        taken: whether a later piece took what it made.
        pools: waits for permits inside, by pool: from when to when.
        holds: permits that were taken inside, in the order in which they were.
        compiled: from when to when something was compiled inside.
        is_load: whether it is a load.
    """

    node: str
    lane: int
    start: int
    end: int
    flows: tuple[int, ...]
    args: dict[str, Argument]
    waits: list[Wait]
    before: "Piece | None"
    room: int
    room_of: str = ""
    sources: list["Piece"] = field(default_factory=list["Piece"])
    taken: bool = False
    pools: tuple[Wait, ...] = ()
    holds: tuple[Hold, ...] = ()
    compiled: tuple[tuple[int, int], ...] = ()
    is_load: bool = False

    @property
    def call(self) -> str:
        """``add`` or ``finish`` of a collecting sink; else empty."""
        return str(self.args.get("call", ""))

    @property
    def birth(self) -> int | None:
        """Birth number of what was worked on; ``None`` where it has none."""
        birth = self.args.get("birth")
        return birth if isinstance(birth, int) else None

    @property
    def num_items(self) -> int:
        """Things that were worked on: quick ones that follow on each other share a slice."""
        items = self.args.get("items", 1)
        return items if isinstance(items, int) else 1

    def blocked(self) -> Iterable[Wait]:
        """Waits for pools right before it and inside it."""
        return [*(wait for wait in self.waits if wait.kind == "pool"), *self.pools]


@dataclass(eq=False)
class Execution:
    """One execution of a graph.

    Attributes:
        graph: its name.
        start: ns.
        end: ns.
        nodes: names, from the sources on.
        lanes: node of each lane.
        pieces: all, in the order in which they began.
        tails: last waits of each lane, behind its last piece.
        loads: of cells, in order.
        syncs: waits inside loads, of their cells.
        compiled: compilations on the tracks of roles.
        instants: of its own events.
        counters: its own and those of roles: name, unit, mean and largest value.
        by_node: pieces of each node, in order.
    """

    graph: str
    start: int
    end: int
    nodes: list[str]
    lanes: list[str] = field(default_factory=list[str])
    pieces: list[Piece] = field(default_factory=list[Piece])
    tails: list[list[Wait]] = field(default_factory=list[list[Wait]])
    loads: list[Piece] = field(default_factory=list[Piece])
    syncs: list[Interval] = field(default_factory=list[Interval])
    compiled: list[Interval] = field(default_factory=list[Interval])
    instants: list[Instant] = field(default_factory=list[Instant])
    counters: list[tuple[str, str, float, float]] = field(default_factory=list[tuple[str, str, float, float]])
    by_node: dict[str, list[Piece]] = field(default_factory=dict[str, list[Piece]])

    @property
    def seconds(self) -> float:
        """Length."""
        return (self.end - self.start) / 1e9

    def pools(self) -> dict[str, tuple[float, float]]:
        """Mean number of the units of each pool that there were, and of those that were held."""
        means = {name: mean for name, _, mean, _ in self.counters}
        names = [name.removesuffix(_UNITS) for name in means if name.startswith(_POOL) and name.endswith(_UNITS)]
        return {name.removeprefix(_POOL): (means[f"{name}{_UNITS}"], means.get(f"{name}{_HELD}", 0.0)) for name in names}

    def settle(self) -> None:
        """All pieces are there: put them in order."""
        places = {node: index for index, node in enumerate(self.nodes)}
        self.pieces.sort(key=lambda piece: (piece.start, places[piece.node]))  # who hands over at once comes first
        for piece in self.pieces:
            self.by_node.setdefault(piece.node, []).append(piece)
        self.loads.sort(key=lambda load: load.start)

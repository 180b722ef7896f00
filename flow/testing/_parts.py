"""What random graphs are made of, as values that declare themselves.

A new kind of part is a class here with its ``declare``, a draw in ``_drawing.py``, and a case in ``_interpreter.py``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .._graph import Graph, Node
from .._handles import Cell
from .._limits import Capacity, Cost, Inline, Items, Threads
from .._policy import Drop, Emit, Fail, Missing, Retry
from ._chance import chance, number
from ._collected import Collected
from ._works import Diary, Fate, SlowSink, blocks, cost_of, key_of, typed, waits

POOLS: Mapping[str, int | tuple[int, int]] = {"a": 1, "b": 2, "c": (1, 3)}
RATES: Mapping[str, float] = {"starts": 5.0}
DEADLINE_S = 150.0
"""Longer than any attempt takes that does not hang."""
_MANY = 10**6

Ends: TypeAlias = tuple[Node[Any, Any], Node[Any, Any] | None]
"""The first node of a part and the last; ``None`` where nothing follows."""


@dataclass
class Site:
    """Where a random graph is declared: what all its parts share.

    Attributes:
        graph: the real graph.
        seed: of the random graph.
        sinks: what keeps the arrivals, by the name of the end.
        diary: what stages and sinks write into.
        cell: what the stages of the pair read with training; ``None`` without.
        depth: how often an item is gathered where the next part is declared: pairs follow one another.
    """

    graph: Graph
    seed: int
    sinks: Mapping[str, Collected[Any]]
    diary: Diary
    cell: Cell[int] | None = None
    depth: int = 0

    def line(self, parts: Sequence["Part"], before: Node[Any, Any], *, inside: bool = False) -> Node[Any, Any] | None:
        """Declare parts one behind the other; gives the last node. ``inside``: between a repeat and its group."""
        last: Node[Any, Any] | None = before
        for part in parts:
            assert last is not None, "nothing follows a fork that is not joined"
            first, end = part.declare(self, last, inside)
            self.connect(last, first, part)
            last = end
        return last

    def connect(self, before: Node[Any, Any], first: Node[Any, Any], part: "Part") -> None:
        """Draw the edge to a part, with the bound that it wants."""
        self.graph.edge(before, first, capacity=part.bound if isinstance(part, Step) else None)

    def end(self, name: str, kept_as: str, before: Node[Any, Any] | None) -> None:
        """Declare a sink that takes item by item, its arrivals kept under a name that several may share."""
        if before is not None:
            self.graph.edge(before, self.graph.sink(name, SlowSink(self.sinks[kept_as], self.seed, self.diary)))


@dataclass(frozen=True)
class Step:
    """A stage of a random graph.

    Attributes:
        name: of its node.
        fail: chance that an attempt raises.
        filter: chance that an attempt that does not raise filters its item.
        spread: whether it gives from none to three outputs, and not always one.
        retries: of its policy.
        then: what follows the last retry.
        workers: attempts at once.
        order: in which outputs leave.
        needs: pool units and starts of rates.
        room: bound of the edge before it; ``None`` for the default.
        cost: bound in cost of the same edge.
        key: number of keys that its inputs have; ``None`` for no key.
        place: on the loop, asynchronous or not, or on threads.
        hangs: whether an attempt that fails does so by its deadline. On the loop only.
        acts: name of the stage whose fates its items meet; empty for its own.
    """

    name: str
    fail: float
    filter: float
    spread: bool
    retries: int
    then: Literal["drop", "emit"]
    workers: int
    order: Literal["any", "input"]
    needs: tuple[tuple[str, int], ...]
    room: int | None
    cost: float | None = None
    key: int | None = None
    place: Literal["loop", "inline", "threads"] = "loop"
    hangs: bool = False
    acts: str = ""

    def fate(self, seed: int, path: tuple[int, ...], retry: int) -> Fate:
        """Tell what an attempt does."""
        name = number(self.acts or self.name)
        if chance(seed, name, path, retry, 0) < self.fail:
            return "raise"
        if chance(seed, name, path, retry, 1) < self.filter:
            return "filter"
        return int(chance(seed, name, path, retry, 2) * 4) if self.spread else 1

    @property
    def bound(self) -> Capacity | None:
        """Of the edge before it."""
        items = None if self.room is None else Items(self.room)
        return items if self.cost is None else (items or Capacity()) | Cost(self.cost, cost_of)

    def declare(self, site: Site, before: Node[Any, Any], inside: bool) -> Ends:
        """Add the stage to a graph."""
        final = Drop(_MANY, _MANY) if self.then == "drop" else Emit(lambda value, failure, context: value, _MANY, _MANY)
        seed, keys = site.seed, self.key
        node = site.graph.stage(
            self.name,
            typed((waits if self.place == "loop" else blocks)(self, seed, site.diary), site.depth, spread=self.spread),
            workers=self.workers,
            order=self.order,
            key=None if keys is None else lambda value: key_of(seed, self.name, value, keys),
            needs=dict(self.needs),
            reads=site.cell if inside else None,
            deadline_s=DEADLINE_S if self.hangs else None,
            on_error=Retry(self.retries, then=final, backoff_s=0.5) if self.retries else final,
            budget=None,
            placement=Threads() if self.place == "threads" else Inline(),
        )
        return node, node


@dataclass(frozen=True)
class Pair:
    """Groups: a repeat, what handles the members, and the barrier.

    Attributes:
        name: of its barrier.
        size: members of a group.
        inside: what lies between. A fork there is joined again, and no broadcast.
        missing: policy of the barrier.
    """

    name: str
    size: int
    inside: tuple["Part", ...]
    missing: Missing

    def declare(self, site: Site, before: Node[Any, Any], inside: bool) -> Ends:
        """Add the pair to a graph."""
        first = site.graph.repeat(f"{self.name} members", before, n=self.size)
        last = site.line(self.inside, first, inside=True)
        assert last is not None
        barrier = site.graph.group(self.name, last, missing=self.missing, budget=None)
        site.graph.edge(last, barrier)
        site.depth += 1
        return first, barrier


@dataclass(frozen=True)
class Side:
    """A broadcast one branch of which goes on; the others end in sinks of their own.

    Attributes:
        name: of its node.
        branches: the others. The one that goes on is the last.
    """

    name: str
    branches: tuple[tuple["Part", ...], ...]

    def end_of(self, index: int) -> str:
        """Name of the sink of a branch."""
        return f"{self.name} end{index}"

    def declare(self, site: Site, before: Node[Any, Any], inside: bool) -> Ends:
        """Add it to a graph."""
        first = site.graph.broadcast(self.name, before)
        for index, branch in enumerate(self.branches):
            end = self.end_of(index)
            site.end(end, end, site.line(branch, first, inside=inside))
        return first, first


@dataclass(frozen=True)
class Fork:
    """Branches between a fan-out and a merge, or each with a sink at its end.

    Attributes:
        name: of the fan-out.
        kind: which it is. The branches of a balance do the same to an item (``Step.acts``), so that it does not matter which it
            takes.
        branches: what lies on each. The last one may be empty, where they are joined.
        joined: whether a merge follows.
        weights: of the inputs of the merge.
        patience: of the merge.
        doors: of a route, the branch of each key.
        lost: of a route, number of further keys that have no branch.
    """

    name: str
    kind: Literal["broadcast", "balance", "route"]
    branches: tuple[tuple["Part", ...], ...]
    joined: bool = True
    weights: tuple[int, ...] = ()
    patience: int = 8
    doors: tuple[int, ...] = ()
    lost: int = 0

    def end_of(self, index: int) -> str:
        """Name under which the arrivals of a branch that is not joined are kept: of a balance, the same for all."""
        return f"{self.name} ends" if self.kind == "balance" else f"{self.name} end{index}"

    def key(self, seed: int, value: Any) -> int:
        """Key of a value at a route."""
        return key_of(seed, self.name, value, len(self.doors) + self.lost)

    def declare(self, site: Site, before: Node[Any, Any], inside: bool) -> Ends:
        """Add it to a graph."""
        if self.kind == "route":
            return self._declare_route(site, before, inside)
        first = (site.graph.broadcast if self.kind == "broadcast" else site.graph.balance)(self.name, before)
        return first, self._close(site, [site.line(branch, first, inside=inside) for branch in self.branches])

    def _declare_route(self, site: Site, before: Node[Any, Any], inside: bool) -> Ends:
        firsts = [branch[0].declare(site, before, inside) if branch else None for branch in self.branches]
        lasts = [
            site.line(branch[1:], ends[1], inside=inside)
            for ends, branch in zip(firsts, self.branches, strict=True)
            if ends is not None and ends[1] is not None
        ]
        end = self._close(site, lasts)
        targets = [end if ends is None else ends[0] for ends in firsts]
        to = {key: target for key, door in enumerate(self.doors) if (target := targets[door]) is not None}
        first = site.graph.route(
            self.name,
            before,
            by=lambda value: self.key(site.seed, value),
            to=to,
            on_error=Drop(_MANY, _MANY) if self.lost else Fail(),
            budget=None,
        )
        for ends, branch in zip(firsts, self.branches, strict=True):
            if ends is not None:
                site.connect(first, ends[0], branch[0])
        return first, end

    def _close(self, site: Site, lasts: Sequence[Node[Any, Any] | None]) -> Node[Any, Any] | None:
        found = [node for node in lasts if node is not None]
        if not self.joined:
            for index, node in enumerate(found):
                site.end(f"{self.name} sink{index}", self.end_of(index), node)
            return None
        names = [node.name for node in found] + [self.name] * (len(self.branches) - len(found))
        weights = dict(zip(names, self.weights, strict=True)) if self.weights else None
        return site.graph.merge(f"{self.name} join", found, weights=weights, patience=self.patience)


Part: TypeAlias = Step | Pair | Side | Fork

"""The declared graph as frozen data: what ``Graph`` builds up, ``_check`` proves, ``_draw`` shows and ``_run`` executes."""

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ._limits import Capacity, Collect, Freshness, Inline, Placement
from ._policy import Budget, Fail, Missing, OnError, Retry
from ._types import united

Kind = Literal["source", "versions", "stage", "repeat", "group", "broadcast", "balance", "route", "merge", "sink"]
Order = Literal["any", "input"]
Units: TypeAlias = int | tuple[int, int]
"""Size of a pool: fixed, or the (least, most) between which the engine resizes it."""
BEGINNINGS = ("source", "versions")
"""Kinds that no edge leads to."""
PASSING = ("versions", "repeat", "group", "broadcast", "balance", "route", "merge")
"""Kinds that run no stage: they pass on what they take, as it is or gathered, or the versions of a cell."""


@dataclass(frozen=True)
class NodeSpec:
    """One node. Fields that a kind does not use keep their defaults.

    Attributes:
        name: unique in the graph; its id in traces, metrics and snapshots.
        kind: what the node does with its items.
        stage: the user's source, function or object; ``None`` for the kinds in ``PASSING``.
        takes: type of the input items.
        gives: type of the output items.
        workers: attempts at once.
        order: ``any``: outputs leave as they are ready; ``input``: in the order of their inputs.
        key: inputs of an equal ``key(value)`` are handled one at a time and leave in their order; ``None`` for no such bond.
        needs: pool units held while the stage's code runs, and starts drawn from rates, by name.
        reads: name of the cell whose version stamps the items.
        deadline_s: seconds an attempt may take; ``None`` for half an hour, roughly.
        on_error: what happens to an item whose attempt raised.
        placement: where the stage's code runs.
        size: members a repeat makes of each item.
        missing: what a group does about members that failed.
        budget: how many of the last outcomes may fail (of a group: how many groups may be dropped); ``None`` for any.
        collect: how a sink takes its input in steps; ``None`` item by item.
        by: of a route, the key of a value.
        branches: of a route, the name of the node behind the branch of each key.
        weights: of a merge, items each input may pass in a round, by the name of the node before it. ``Spec`` of a graph names
            every input.
        patience: of a merge, how often in a row an input that has an item is passed over at most. ``Spec`` of a graph
            has a number.
        where: the user's own ``file:line``.
    """

    name: str
    kind: Kind
    stage: Any
    takes: Any
    gives: Any
    workers: int = 1
    order: Order = "any"
    key: Callable[[Any], Any] | None = None
    needs: Mapping[str, int] = field(default_factory=dict[str, int])
    reads: str | None = None
    deadline_s: float | None = None
    on_error: OnError = Fail()
    placement: Placement = Inline()
    size: int = 1
    missing: Missing = "drop"
    budget: Budget | None = (50, 100)
    collect: Collect | None = None
    by: Callable[[Any], Any] | None = None
    branches: Mapping[Any, str] = field(default_factory=dict[Any, str])
    weights: Mapping[str, int] = field(default_factory=dict[str, int])
    patience: int | None = None
    where: str = ""

    @property
    def timed(self) -> bool:
        """Whether its attempts have a deadline of their own."""
        return self.deadline_s is not None and self.deadline_s != math.inf


@dataclass(frozen=True)
class EdgeSpec:
    """A connection of two nodes. ``capacity`` is the user's; the plan holds the resolved one.

    What is put on a ``durable`` one is noted in the journal of a run that has one. ``strays`` are the handles of other graphs
    it was declared with: the name of the node and of its graph.
    """

    source: str
    target: str
    capacity: Capacity = Capacity()
    durable: bool = False
    where: str = ""
    strays: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The edge's id."""
        return f"{self.source}->{self.target}"


_SOURCE, _TARGET = attrgetter("source"), attrgetter("target")


@dataclass(frozen=True)
class CellSpec:
    """A versioned cell. ``load`` is awaited with (value, version) before a version is in force; ``None`` for at once."""

    name: str
    type: Any
    load: Any = None
    where: str = ""


@dataclass(frozen=True)
class FeedbackSpec:
    """The edge that leads the results of a sink back to readers. ``initial`` is a value, or a function that makes it."""

    source: str
    cell: str
    freshness: Freshness | None = None
    initial: Any = None
    where: str = ""


@dataclass(frozen=True)
class Spec:
    """A whole graph.

    Attributes:
        name: id of the graph.
        pools: size of each pool, fixed or (least, most).
        nodes: by name, in order of declaration.
        edges: in order of declaration.
        cells: by name.
        feedback: edges from sinks to cells.
        rates: starts per second of each rate.
        where: the user's own ``file:line``.
    """

    name: str
    pools: Mapping[str, Units]
    nodes: Mapping[str, NodeSpec]
    edges: tuple[EdgeSpec, ...]
    cells: Mapping[str, CellSpec]
    feedback: tuple[FeedbackSpec, ...]
    rates: Mapping[str, float] = field(default_factory=dict[str, float])
    where: str = ""

    def outputs(self, name: str) -> list[EdgeSpec]:
        """Edges that leave a node, in order of declaration."""
        return self._by_source.get(name, [])

    def inputs(self, name: str) -> list[EdgeSpec]:
        """Edges that lead to a node, in order of declaration."""
        return self._by_target.get(name, [])

    @cached_property
    def _by_source(self) -> dict[str, list[EdgeSpec]]:
        return {name: list(edges) for name, edges in groupby(sorted(self.edges, key=_SOURCE), key=_SOURCE)}

    @cached_property
    def _by_target(self) -> dict[str, list[EdgeSpec]]:
        return {name: list(edges) for name, edges in groupby(sorted(self.edges, key=_TARGET), key=_TARGET)}

    def pool_bounds(self, name: str) -> tuple[int, int]:
        """Least and most units of a pool; equal where its size is fixed."""
        units = self.pools[name]
        return units if isinstance(units, tuple) else (units, units)

    def origins(self, name: str) -> list[str]:
        """Where the ways back from a node end, in order of declaration.

        These are the repeats that open the groups the node handles, gathers, or takes gathered, and, on ways without one,
        sources.
        """
        start: tuple[str, int, bool] = (name, 0, self.nodes[name].kind == "group")
        found: set[str] = set()
        seen: set[tuple[str, int, bool]] = {start}
        rest: list[tuple[str, int, bool]] = [start]
        while rest:
            at, nested, inside = rest.pop()
            before = [edge.source for edge in self.inputs(at)]
            if not before:
                found.add(at)
            for source in before:
                state = self._step_back(source, nested, inside)
                if state is None:
                    found.add(source)
                elif state not in seen and state[1] <= len(self.nodes):  # in a cycle the depth of nesting has no end
                    seen.add(state)
                    rest.append(state)
        return [node for node in self.nodes if node in found]

    def _step_back(self, name: str, nested: int, inside: bool) -> tuple[str, int, bool] | None:
        """Walk back onto a node; ``None`` where the way ends there."""
        kind = self.nodes[name].kind if name in self.nodes else "source"
        if kind == "repeat":
            return (name, nested - 1, inside) if nested else None
        if kind == "group":
            # Behind a barrier items are whole groups: the first one met is theirs, a second one lies inside it.
            return name, nested + inside, True
        return name, nested, inside

    def opener(self, name: str) -> str | None:
        """The one repeat that all ways back from a node lead to; ``None`` where there is none, or more than that."""
        ends = self.origins(name)
        return ends[0] if len(ends) == 1 and ends != [name] and self.nodes[ends[0]].kind == "repeat" else None

    def path(self, name: str) -> tuple[str, ...]:
        """Every node on a way from the opener of a node to the node, both included, by depth; empty without an opener."""
        opener = self.opener(name)
        if opener is None:
            return ()
        found, rest = {name, opener}, [name]
        while rest:
            before = {edge.source for edge in self.inputs(rest.pop())} - found
            found |= before
            rest.extend(before)
        depths = self.depths()
        return tuple(sorted((node for node in self.nodes if node in found), key=lambda node: depths[node]))

    def retries_aside(self, name: str) -> int:
        """Most retries that stages grant one copy of a member of a group on a branch that does not lead on to the group."""
        path = set(self.path(name))
        most: dict[str, int] = {}
        for node in sorted(self.nodes, key=self.depths().__getitem__):
            before = [most[edge.source] for edge in self.inputs(node) if edge.source in most]
            copied = any(edge.source in path and edge.source != name for edge in self.inputs(node))
            if node not in path and (before or copied):
                policy = self.nodes[node].on_error
                most[node] = max(before, default=0) + (policy.times if isinstance(policy, Retry) else 0)
        return max(most.values(), default=0)

    def enclosing(self, name: str) -> list[str]:
        """Repeats whose groups are still open at a node: met on a way back before any group, in order of declaration."""
        found: set[str] = set()
        seen, rest = {name}, [name]
        while rest:
            for edge in self.inputs(rest.pop()):
                kind = self.nodes[edge.source].kind
                if kind == "repeat":
                    found.add(edge.source)
                elif kind != "group" and edge.source not in seen:
                    seen.add(edge.source)
                    rest.append(edge.source)
        return [node for node in self.nodes if node in found]

    def ancestors(self, name: str) -> set[str]:
        """Every node on a way to this one, without it."""
        found: set[str] = set()
        rest = [name]
        while rest:
            before = {edge.source for edge in self.inputs(rest.pop())} - found
            found |= before
            rest.extend(before)
        return found

    def sinks_of(self, name: str) -> set[str]:
        """Sinks that items of a node can reach; of a sink, itself."""
        return {other for other, node in self.nodes.items() if node.kind == "sink" and name in {other, *self.ancestors(other)}}

    def sources_that_meet(self) -> list[str]:
        """Sources whose items may stand on one edge with those of another, in order of declaration."""
        found: set[str] = set()
        for node in self.nodes:
            sources = {name for name in self.ancestors(node) if self.nodes[name].kind in BEGINNINGS}
            found |= sources if len(sources) > 1 else set()
        return [name for name in self.nodes if name in found]

    def with_member_types(self, gathered: Any) -> "Spec":
        """Fill in what follows from the edges: types of the nodes that pass on what they take, and weights left open."""
        nodes, depths = dict(self.nodes), self.depths()
        for name in sorted(nodes, key=lambda name: depths[name]):
            node, before = nodes[name], [edge.source for edge in self.inputs(name) if edge.source in nodes]
            if node.kind in PASSING and before:
                given = united([nodes[source].gives for source in before])
                nodes[name] = replace(node, takes=given, gives=gathered[given] if node.kind == "group" else given)
            if node.kind == "merge":
                weights = {**dict.fromkeys(before, 1), **node.weights}
                patience = enough_patience(weights.values()) if node.patience is None else node.patience
                nodes[name] = replace(nodes[name], weights=weights, patience=patience)
        return replace(self, nodes=nodes)

    def depths(self) -> dict[str, int]:
        """Longest distance of each node from the sources; on a cycle, and behind it, not the whole of it."""
        depths = dict.fromkeys(self.nodes, 0)
        waits = {name: sum(edge.source in depths for edge in self.inputs(name)) for name in self.nodes}
        rest = [name for name, count in waits.items() if count == 0]
        while rest:
            name = rest.pop()
            for edge in self.outputs(name):
                if edge.target in depths:
                    depths[edge.target] = max(depths[edge.target], depths[name] + 1)
                    waits[edge.target] -= 1
                    if waits[edge.target] == 0:
                        rest.append(edge.target)
        return depths


def round_of(weights: Collection[int]) -> int:
    """Moves of a merge for each one of its lightest input."""
    return math.ceil(sum(weights) / max(1, min(weights, default=1)))


def enough_patience(weights: Collection[int]) -> int:
    """Patience of a merge that leaves every input the share of its weight.

    Twice the moves for each one of the lightest input, which may be early in one round and late in the next.
    """
    return max(8, 2 * round_of(weights))


_HERE = str(Path(__file__).parent) + os.sep


def caller() -> str:
    """The user's own line: the nearest frame outside this package, as ``file:line``."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"

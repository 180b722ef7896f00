"""The declared graph as frozen data: what ``Graph`` builds up, ``_check`` proves, ``_draw`` shows and ``_run`` executes."""

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ._limits import Capacity, Collect, Freshness, Inline, Placement
from ._policy import Budget, Fail, Missing, OnError

Kind = Literal["source", "stage", "repeat", "group", "sink"]
Order = Literal["any", "input"]


@dataclass(frozen=True)
class NodeSpec:
    """One node. Fields that a kind does not use keep their defaults.

    Attributes:
        name: unique in the graph; its id in traces, metrics and snapshots.
        kind: what the node does with its items.
        stage: the user's source, function or object; ``None`` for repeat and group.
        takes: type of the input items.
        gives: type of the output items.
        workers: attempts at once.
        order: ``any``: outputs leave as they are ready; ``input``: in the order of their inputs.
        needs: pool units held while the stage's code runs.
        reads: name of the cell whose version stamps the items.
        deadline_s: seconds an attempt may take; ``None`` for no deadline.
        on_error: what happens to an item whose attempt raised.
        placement: where the stage's code runs.
        size: members a repeat makes of each item.
        missing: what a group does about members that failed.
        budget: how many of the last outcomes may fail (of a group: how many groups may be dropped); ``None`` for any.
        collect: how a sink takes its input in steps; ``None`` item by item.
        where: the user's own ``file:line``.
    """

    name: str
    kind: Kind
    stage: Any
    takes: Any
    gives: Any
    workers: int = 1
    order: Order = "any"
    needs: Mapping[str, int] = field(default_factory=dict[str, int])
    reads: str | None = None
    deadline_s: float | None = None
    on_error: OnError = Fail()
    placement: Placement = Inline()
    size: int = 1
    missing: Missing = "drop"
    budget: Budget | None = (50, 100)
    collect: Collect | None = None
    where: str = ""


@dataclass(frozen=True)
class EdgeSpec:
    """A connection of two nodes. ``capacity`` is the user's; the plan holds the resolved one."""

    source: str
    target: str
    capacity: Capacity = Capacity()
    where: str = ""

    @property
    def name(self) -> str:
        """The edge's id."""
        return f"{self.source}->{self.target}"


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
    """A whole graph."""

    name: str
    pools: Mapping[str, int]
    nodes: Mapping[str, NodeSpec]
    edges: tuple[EdgeSpec, ...]
    cells: Mapping[str, CellSpec]
    feedback: tuple[FeedbackSpec, ...]

    def after(self, name: str) -> list[EdgeSpec]:
        """Edges that leave a node."""
        return [edge for edge in self.edges if edge.source == name]

    def before(self, name: str) -> list[EdgeSpec]:
        """Edges that lead to a node."""
        return [edge for edge in self.edges if edge.target == name]

    def opener(self, name: str) -> str | None:
        """The repeat that opens the groups a node handles, gathers, or takes gathered; ``None`` where there is none."""
        inside = self.nodes[name].kind == "group"
        nested, seen = 0, {name}
        while edges := self.before(name):
            name = edges[0].source
            if name in seen or name not in self.nodes:
                return None
            seen.add(name)
            kind = self.nodes[name].kind
            if kind == "repeat":
                if nested == 0:
                    return name
                nested -= 1
            elif kind == "group":
                # Behind a barrier items are whole groups: the first one met is theirs, a second one lies inside it.
                nested += 1 if inside else 0
                inside = True
        return None

    def behind_group(self, name: str) -> bool:
        """Whether the nearest end of a pair before a node is a group, so that its items are in no open group."""
        seen = {name}
        while (edges := self.before(name)) and edges[0].source not in seen:
            name = edges[0].source
            seen.add(name)
            if self.nodes[name].kind in ("repeat", "group"):
                return self.nodes[name].kind == "group"
        return True

    def with_member_types(self, gathered: Any) -> "Spec":
        """Fill in what repeats and groups take and give, which is what the node before them gives."""
        nodes, depths = dict(self.nodes), self.depths()
        for name in sorted(nodes, key=lambda name: depths[name]):
            node, edges = nodes[name], self.before(name)
            if node.kind in ("repeat", "group") and edges and edges[0].source in nodes:
                given = nodes[edges[0].source].gives
                nodes[name] = replace(node, takes=given, gives=gathered[given] if node.kind == "group" else given)
        return replace(self, nodes=nodes)

    def depths(self) -> dict[str, int]:
        """Distance of each node from the sources."""
        depths = dict.fromkeys(self.nodes, 0)
        for _ in self.nodes:
            for edge in self.edges:
                if edge.source in depths and edge.target in depths:
                    depths[edge.target] = min(max(depths[edge.target], depths[edge.source] + 1), len(self.nodes))
        return depths


_HERE = str(Path(__file__).parent) + os.sep


def caller() -> str:
    """The user's own line: the nearest frame outside this package, as ``file:line``."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"

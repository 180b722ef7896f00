"""Declaring a graph: nodes by name, ``>>`` for lines, ``edge`` for bounds, ``feedback`` for the way back.

Nothing here starts anything. A graph is a value under construction; ``build`` proves it and gives the plan that runs.
"""

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, overload

from ._check import check
from ._context import Context
from ._draw import draw
from ._item import Failed, Filtered, Gathered, Many
from ._limits import Capacity, Collect, Freshness, Inline, Placement
from ._plan import Plan
from ._policy import Budget, Fail, Missing, OnError
from ._spec import CellSpec, EdgeSpec, FeedbackSpec, NodeSpec, Order, Spec, caller
from ._types import UNTYPED, drawn_by, hints_of

_SETTINGS = {
    "workers": "workers", "order": "order", "needs": "needs", "reads": "reads", "deadline_s": "deadline_s",
    "on_error": "on_error", "placement": "placement", "n": "size", "missing": "missing",
    "budget": "budget", "collect": "collect",
}  # fmt: skip
"""What ``with_`` may change, and the field of the spec that holds it."""

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
Result: TypeAlias = Out | Many[Out] | Failed[Out] | Filtered
ManyWork: TypeAlias = Callable[[In, Context], Awaitable[Many[Out]]] | Callable[[In, Context], Many[Out]]
AsyncWork: TypeAlias = Callable[[In, Context], Awaitable[Result[Out]]]
SyncWork: TypeAlias = Callable[[In, Context], Result[Out]]


class Settings(TypedDict, total=False):
    """Settings of a stage; ``Graph.stage`` explains them."""

    workers: int
    order: Order
    needs: Mapping[str, int] | None
    reads: "Cell[Any] | None"
    deadline_s: float | None
    on_error: OnError
    budget: Budget | None
    placement: Placement


class Source(Protocol[Out_co]):
    """Where items come from. ``draw`` gives the next one and raises ``StopIteration`` at the end."""

    def draw(self) -> Out_co:
        """Give the next item."""
        ...


class Collector(Protocol[In_contra, Out_co]):
    """A sink that takes a fixed number of items a step. Both methods run one at a time, in step order."""

    def add(self, value: In_contra, context: Context, /) -> Awaitable[None] | None:
        """Take one item of the step under way."""
        ...

    def finish(self, context: Context, /) -> Out_co:
        """Complete the step. The result, awaited where it is awaitable, goes to the feedback edge."""
        ...


class Node(Generic[In_contra, Out_co]):
    """Handle of a declared node."""

    def __init__(self, graph: "Graph", name: str) -> None:
        self._graph, self.name = graph, name

    def __rshift__(self: "Node[Any, Out]", other: "Node[Out, T]") -> "Node[Out, T]":
        """Connect two nodes; gives the right one, so that lines can be written."""
        self._graph.edge(self, other)
        return other

    def __repr__(self) -> str:
        return f"<node {self._graph.name}.{self.name}>"


class Cell(Generic[T]):
    """Handle of a versioned cell."""

    def __init__(self, graph: "Graph", name: str) -> None:
        self._graph, self.name = graph, name

    def _invariant(self, value: T) -> T:  # a cell is read and written, so its type may not widen
        return value


class Graph:
    """A graph of stages.

    Args:
        name: id of the graph in traces and messages.
        pools: units of each named pool that stages share.
    """

    def __init__(self, name: str, pools: Mapping[str, int] | None = None) -> None:
        self.name = name
        self._pools = dict(pools or {})
        self._nodes: dict[str, NodeSpec] = {}
        self._twice: list[NodeSpec | CellSpec] = []
        self._edges: dict[tuple[str, str], EdgeSpec] = {}
        self._cells: dict[str, CellSpec] = {}
        self._feedback: list[FeedbackSpec] = []

    @overload
    def source(self, name: str, source: Source[Out], *, placement: Placement = ...) -> Node[None, Out]: ...
    @overload
    def source(self, name: str, source: Iterable[Out], *, placement: Placement = ...) -> Node[None, Out]: ...
    def source(self, name: str, source: Any, *, placement: Placement = Inline()) -> Node[None, Any]:
        """Declare where items come from: an iterable, or an object with ``draw``."""
        return self._node(NodeSpec(name, "source", source, None, drawn_by(source), placement=placement, where=caller()))

    # Overloads, since checkers do not solve one signature for all.
    @overload
    def stage(self, name: str, work: ManyWork[In, Out], **settings: Unpack[Settings]) -> Node[In, Out]: ...
    @overload
    def stage(self, name: str, work: AsyncWork[In, Out], **settings: Unpack[Settings]) -> Node[In, Out]: ...
    @overload
    def stage(self, name: str, work: SyncWork[In, Out], **settings: Unpack[Settings]) -> Node[In, Out]: ...
    def stage(
        self,
        name: str,
        work: Any,
        *,
        workers: int = 1,
        order: Order = "any",
        needs: Mapping[str, int] | None = None,
        reads: Cell[Any] | None = None,
        deadline_s: float | None = None,
        on_error: OnError = Fail(),
        budget: Budget | None = (50, 100),
        placement: Placement = Inline(),
    ) -> Node[Any, Any]:
        """Declare a stage: ``work(value, context)``, async or not, a function or an object with state.

        An object that is also an async context manager is entered before the first item and left after the last.

        Args:
            name: its id.
            work: gives one output, ``Many``, ``Failed`` or ``Filtered``.
            workers: attempts at once.
            order: ``any``, or ``input`` to keep the order of the inputs.
            needs: pool units held while ``work`` runs, granted all at once.
            reads: cell whose version stamps the items when they are dispatched.
            deadline_s: seconds an attempt may take; ``None`` for no deadline.
            on_error: what happens to an item whose attempt raised.
            budget: (most, of): the run ends with ``BudgetExceeded`` when more than ``most`` of the last ``of`` outcomes were
                ``Failed``, or, on a line with tickets, when ``of`` in a row gave nothing. ``Drop`` and ``Emit`` bring limits
                of their own for failures. ``None`` for no limit.
            placement: where synchronous work runs.
        """
        takes, gives = hints_of(work)
        return self._node(
            NodeSpec(
                name,
                "stage",
                work,
                takes,
                gives,
                workers,
                order,
                dict(needs or {}),
                reads.name if reads else None,
                deadline_s,
                on_error,
                placement,
                budget=budget,
                where=caller(),
            )
        )

    def repeat(self, name: str, upstream: Node[Any, T], *, n: int) -> Node[T, T]:
        """Declare a fan-out: each item becomes a group of ``n`` members, and takes a ticket where there is freshness."""
        gives = self._nodes[upstream.name].gives if upstream.name in self._nodes else UNTYPED
        return self._node(NodeSpec(name, "repeat", None, gives, gives, size=n, where=caller()))

    def group(
        self, name: str, upstream: Node[Any, T], *, missing: Missing = "drop", budget: Budget | None = (50, 100)
    ) -> Node[T, Gathered[T]]:
        """Declare a barrier: the members of each group of the repeat before it leave together.

        Args:
            name: its id.
            upstream: the node whose outputs it gathers.
            missing: what happens to a group a member of which failed.
            budget: (most, of): the run ends with ``BudgetExceeded`` when more than ``most`` of the last ``of`` groups were
                dropped. Those that became too old do not count: they age only while steps are completed. ``None`` for no limit.
        """
        takes = self._nodes[upstream.name].gives if upstream.name in self._nodes else UNTYPED
        return self._node(NodeSpec(name, "group", None, takes, Gathered[takes], missing=missing, budget=budget, where=caller()))

    @overload
    def sink(
        self, name: str, work: Collector[In, Awaitable[Out]], *, collect: Collect, placement: Placement = ...
    ) -> Node[In, Out]: ...
    @overload
    def sink(self, name: str, work: Collector[In, Out], *, collect: Collect, placement: Placement = ...) -> Node[In, Out]: ...
    @overload
    def sink(
        self, name: str, work: AsyncWork[In, Out], *, on_error: OnError = ..., placement: Placement = ...
    ) -> Node[In, Out]: ...
    @overload
    def sink(
        self, name: str, work: SyncWork[In, Out], *, on_error: OnError = ..., placement: Placement = ...
    ) -> Node[In, Out]: ...
    def sink(
        self,
        name: str,
        work: Any,
        *,
        collect: Collect | None = None,
        on_error: OnError = Fail(),
        placement: Placement = Inline(),
    ) -> Node[Any, Any]:
        """Declare where items end: a function of each item, or a ``Collector`` of a number of items a step."""
        if collect is None:
            takes, gives = hints_of(work)
        else:
            takes, gives = _collected(work)
        return self._node(
            NodeSpec(name, "sink", work, takes, gives, on_error=on_error, placement=placement, collect=collect, where=caller())
        )

    def latest(self, name: str, of: type[T], *, load: Callable[[T, int], Awaitable[None]] | None = None) -> Cell[T]:
        """Declare a versioned cell.

        Args:
            name: its id.
            of: type of the values.
            load: awaited with (value, version); a version is in force when it returns. The initial value is version 0 and is
                loaded before anything else happens. ``None``: at once.
        """
        cell = CellSpec(name, of, load, caller())
        if name in self._cells:
            self._twice.append(cell)
        self._cells.setdefault(name, cell)
        return Cell(self, name)

    def edge(self, source: Node[Any, T], target: Node[T, Any], *, capacity: Capacity | None = None) -> None:
        """Connect two nodes, or bound a connection. Without a capacity: twice the workers of the target."""
        key = (source.name, target.name)
        known = self._edges.get(key, EdgeSpec(*key, where=caller()))
        self._edges[key] = known if capacity is None else replace(known, capacity=capacity, where=caller())

    def feedback(
        self,
        source: Node[Any, T],
        cell: Cell[T],
        *,
        initial: T | Callable[[], T] | None = None,
        freshness: Freshness | None = None,
    ) -> None:
        """Lead the results of a sink back to a cell.

        Args:
            source: a sink that collects.
            cell: what it writes.
            initial: value in force before the first result, or a function that makes it once stages are open.
            freshness: bound on staleness, by tickets at the repeat before the sink and selection at the sink.
        """
        self._feedback.append(FeedbackSpec(source.name, cell.name, freshness, initial, caller()))

    def replace(self, name: str, work: Any) -> "Graph":
        """Give a graph in which another stage stands at this node.

        Raises:
            KeyError: there is no such node.
            ValueError: the node is a repeat or a group, which hold no stage.
        """
        node = self._spec_of(name)
        if node.stage is None:
            raise ValueError(f"expected a node with a stage, got the {node.kind} {self.name}.{name}; change it with with_")
        if node.kind == "source":
            return self._changed(replace(node, stage=work, gives=drawn_by(work), where=caller()))
        takes, gives = hints_of(work) if node.collect is None else _collected(work)
        return self._changed(replace(node, stage=work, takes=takes, gives=gives, where=caller()))

    def with_(self, name: str, **changes: Any) -> "Graph":
        """Give a graph in which settings of this node differ: ``graph.with_("episodes", workers=128)``.

        Raises:
            KeyError: there is no such node.
            TypeError: there is no such setting.
        """
        node = self._spec_of(name)
        for key in changes:
            if key not in _SETTINGS:
                near = difflib.get_close_matches(key, _SETTINGS, 1)
                hint = f"did you mean '{near[0]}'?" if near else "replace changes the stage itself"
                raise TypeError(f"expected a setting of {self.name}.{name} ({', '.join(_SETTINGS)}), got '{key}'; {hint}")
        fields: dict[str, Any] = {_SETTINGS[key]: value for key, value in changes.items()}
        if "reads" in fields:
            fields["reads"] = getattr(fields["reads"], "name", fields["reads"])
        if "needs" in fields:
            fields["needs"] = dict(fields["needs"] or {})
        return self._changed(replace(node, **fields, where=caller()))

    def spec(self) -> Spec:
        """The graph as data."""
        spec = Spec(self.name, self._pools, self._nodes, tuple(self._edges.values()), self._cells, tuple(self._feedback))
        return spec.with_member_types(Gathered)

    def build(self) -> Plan:
        """Prove the graph and give the plan that runs.

        Raises:
            BuildError: with every fault found.
        """
        return check(self.spec(), self._twice)

    def draw(self) -> str:
        """Draw the graph as text, also where it cannot be built."""
        return draw(self.spec())

    def _node(self, node: NodeSpec) -> Node[Any, Any]:
        if node.name in self._nodes:
            self._twice.append(node)
        else:
            self._nodes[node.name] = node
        return Node(self, node.name)

    def _spec_of(self, name: str) -> NodeSpec:
        if name not in self._nodes:
            raise KeyError(f"graph '{self.name}' has no node '{name}'; it has {', '.join(self._nodes)}")
        return self._nodes[name]

    def _changed(self, node: NodeSpec) -> "Graph":
        graph = Graph(self.name, self._pools)
        graph._nodes = {**self._nodes, node.name: node}
        graph._edges, graph._cells = dict(self._edges), dict(self._cells)
        graph._feedback, graph._twice = list(self._feedback), list(self._twice)
        return graph


def _collected(work: Any) -> tuple[Any, Any]:
    """What a collector takes and gives. A method it lacks says nothing here and is a fault when the graph is built."""
    return hints_of(getattr(work, "add", None))[0], hints_of(getattr(work, "finish", None))[1]

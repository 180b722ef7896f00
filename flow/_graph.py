"""Declaring a graph: nodes by name, ``>>`` for lines, ``edge`` for bounds, ``feedback`` for the way back.

Nothing here starts anything. A graph is a value under construction; ``build`` proves it and gives the plan that runs.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack, overload

from ._change import Edges, branches, bridged, collected, copied, named, rerouted, with_settings, with_stage
from ._check import check
from ._check_kinds import mended
from ._check_warnings import NOT_CHECKED
from ._draw import draw
from ._handles import Cell, Node, node
from ._item import Gathered
from ._limits import Capacity, Collect, Freshness, Inline, Placement
from ._plan import Plan
from ._policy import Budget, Drop, Fail, Missing, OnError, Retry
from ._spec import PASSING, CellSpec, EdgeSpec, FeedbackSpec, NodeSpec, Order, Spec, Units, caller
from ._types import UNTYPED, drawn_by, hints_of, united
from ._work import AsyncWork, Collector, ManyWork, Settings, Source, SyncWork

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")
Key = TypeVar("Key", bound=Hashable)
_LOG = logging.getLogger("headrace")


class Graph:
    """A graph of stages.

    An ``upstream`` in the verbs below gives a node its type; ``>>`` draws the line to it. Nodes named in ``to`` and
    ``upstreams`` are connected at once, since a key or a weight belongs to each of these edges. An edge drawn twice is one.

    Args:
        name: id of the graph in traces and messages.
        pools: units of each named pool that stages share; (least, most) for a pool that is resized between the two.
        rates: starts per second of each named rate that stages share.
    """

    def __init__(self, name: str, pools: Mapping[str, Units] | None = None, rates: Mapping[str, float] | None = None) -> None:
        self.name = name
        self._pools, self._rates, self._where = copied(pools), copied(rates), caller()
        self.origin = object()
        self._nodes: dict[str, NodeSpec] = {}
        self._twice: list[NodeSpec | CellSpec] = []
        self._edges: Edges = {}
        self._cells: dict[str, CellSpec] = {}
        self._feedback: list[FeedbackSpec] = []

    @overload
    def source(self, name: str, source: Source[Out], *, placement: Placement = ...) -> Node[None, Out]: ...
    @overload
    def source(self, name: str, source: Iterable[Out], *, placement: Placement = ...) -> Node[None, Out]: ...
    def source(self, name: str, source: Any, *, placement: Placement = Inline()) -> Node[None, Any]:
        """Declare where items come from: an iterable, or an object with ``draw``.

        An iterator, as a generator is, can be drawn only once: a second run of the plan goes on where the first one ended.
        """
        return self._node(NodeSpec(name, "source", source, None, drawn_by(source), placement=placement, where=caller()))

    def versions(self, name: str, cell: Cell[Any]) -> Node[None, int]:
        """Declare where items begin each time a cell changes: the number of every version that is in force, the first one too.

        For what is to be done with a version, as a measurement beside the line that makes them. A version that gives way while
        there is no room for it is passed over. It ends when the writer of the cell has, and the last version was given.
        """
        return self._node(NodeSpec(name, "versions", None, None, int, reads=named(cell), where=caller()))

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
        key: Callable[[Any], Hashable] | None = None,
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
            key: inputs of an equal ``key(value)`` are handled one at a time and leave in their order, others overtake them;
                not together with ``order="input"``.
            needs: pool units held while ``work`` runs, and starts drawn from rates, by name, granted all at once.
            reads: cell whose version stamps the items when they are dispatched.
            deadline_s: seconds an attempt may take. ``None`` for half an hour, looked at once a minute; ``math.inf`` for any
                time. Synchronous code on the loop cannot be stopped.
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
                key,
                copied(needs),
                named(reads),
                deadline_s,
                on_error,
                placement,
                budget=budget,
                where=caller(),
            )
        )

    def repeat(self, name: str, upstream: Node[Any, T], *, n: int) -> Node[T, T]:
        """Declare a fan-out: each item becomes a group of ``n`` members, and takes a ticket where there is freshness."""
        gives = self._gives(upstream)
        return self._node(NodeSpec(name, "repeat", None, gives, gives, size=n, where=caller()))

    def group(
        self,
        name: str,
        upstream: Node[Any, T],
        *,
        missing: Missing = Retry(1, then="drop"),
        budget: Budget | None = (50, 100),
    ) -> Node[T, Gathered[T]]:
        """Declare a barrier: the members of each group of the repeat before it leave together.

        Args:
            name: its id.
            upstream: the node whose outputs it gathers.
            missing: what happens to a group a member of which failed: ``"drop"`` it, ``Retry`` the member first, or ``Shrink``
                the group, which keeps what is done and is a bias against what fails most.
            budget: (most, of): the run ends with ``BudgetExceeded`` when more than ``most`` of the last ``of`` groups were
                dropped. Those that became too old do not count: they age only while steps are completed. ``None`` for no limit.
        """
        takes = self._gives(upstream)
        return self._node(NodeSpec(name, "group", None, takes, Gathered[takes], missing=missing, budget=budget, where=caller()))

    def broadcast(self, name: str, upstream: Node[Any, T]) -> Node[T, T]:
        """Declare a fan-out: every branch gets each item. The slowest branch governs.

        A copy is no member: of the branches behind a repeat one leads on to the group, the others end in sinks of their own.
        """
        gives = self._gives(upstream)
        return self._node(NodeSpec(name, "broadcast", None, gives, gives, where=caller()))

    def balance(self, name: str, upstream: Node[Any, T]) -> Node[T, T]:
        """Declare a fan-out: each item goes to one of the branches that have room, these in turn."""
        gives = self._gives(upstream)
        return self._node(NodeSpec(name, "balance", None, gives, gives, where=caller()))

    def route(
        self,
        name: str,
        upstream: Node[Any, T],
        *,
        by: Callable[[T], Key],
        to: Mapping[Key, Node[T, Any]],
        on_error: Fail | Drop = Fail(),
        budget: Budget | None = (50, 100),
    ) -> Node[T, T]:
        """Declare a fan-out: each item goes to the branch of its key. Connects the branches.

        Args:
            name: its id.
            upstream: the node whose outputs it sorts.
            by: gives the key of a value, at once and on the loop.
            to: the node behind the branch of each key. Several keys may lead to one node.
            on_error: what happens to an item whose key has no branch, or where ``by`` raised.
            budget: as for a stage: on a line with tickets the run ends when ``of`` items in a row came to nothing.
        """
        gives, targets = self._gives(upstream), {key: node(target).name for key, target in branches(to).items()}
        spec = NodeSpec(
            name, "route", None, gives, gives, on_error=on_error, by=by, branches=targets, budget=budget, where=caller()
        )
        handle = self._node(spec)
        for target in to.values():
            self.edge(handle, target)
        return handle

    def merge(
        self,
        name: str,
        upstreams: Sequence[Node[Any, T]],
        *,
        weights: Mapping[str, int] | None = None,
        patience: int | None = None,
    ) -> Node[T, T]:
        """Declare a fan-in: items of several nodes on one edge, each input's in their order. Connects the inputs.

        The inputs that have an item pass in a smooth weighted round robin. Items keep their paths. Those of sources that meet
        somewhere begin with the number of the source, so that no two of them are the same.

        Args:
            name: its id.
            upstreams: the nodes before it. A tuple, where they take different types: of a list
                mypy knows no more than what all its members have in common.
            weights: items an input may pass in a round, by the name of its node; 1 for each that is not named.
            patience: an input that has an item is passed over at most so often in a row, whatever its weight. ``None``: as
                often as the weights ask for, and at least 8.
        """
        gives = united([self._gives(upstream) for upstream in upstreams] or [UNTYPED])
        spec = NodeSpec(name, "merge", None, gives, gives, weights=copied(weights), patience=patience, where=caller())
        handle = self._node(spec)
        for upstream in upstreams:
            self.edge(upstream, handle)
        return handle

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
            takes, gives = collected(work)
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
        return Cell(name)

    def edge(
        self, source: Node[Any, T], target: Node[T, Any], *, capacity: Capacity | None = None, durable: bool | None = None
    ) -> None:
        """Connect two nodes, or say more of a connection. What is not given stays as it was said before.

        Args:
            source: the node before it.
            target: the node behind it.
            capacity: its bound. Where none was given: twice the workers of the target.
            durable: whether a run with a journal notes what is put on it, so that what the stage before it has finished is not
                made again after a kill. For what is dear to make. Where it was not said: no.
        """
        key, ends = (node(source).name, node(target).name), (source, target)
        strays = tuple((end.name, home) for end in ends if (home := end.home(self.origin)) is not None)
        known = self._edges.get(key, EdgeSpec(*key, where=caller(), strays=strays))
        said: dict[str, Any] = {"capacity": capacity, "durable": durable}
        changes = {field: value for field, value in said.items() if value is not None}
        self._edges[key] = replace(known, **changes, where=caller()) if changes else known

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
        self._feedback.append(FeedbackSpec(node(source).name, named(cell), freshness, initial, caller()))

    def replace(self, name: str, work: Any) -> "Graph":
        """Give a graph in which another stage stands at this node.

        Raises:
            KeyError: there is no such node.
            ValueError: the node holds no stage, as a repeat, a group or a merge.
        """
        node = self._spec_of(name)
        if node.kind in PASSING:
            raise ValueError(f"expected a node with a stage, got the {node.kind} {self.name}.{name}; change it with with_")
        return self._changed({**self._nodes, name: with_stage(node, work)}, dict(self._edges))

    def with_(self, name: str, **changes: Any) -> "Graph":
        """Give a graph in which settings of this node differ: ``graph.with_("episodes", workers=128)``.

        Raises:
            KeyError: there is no such node.
            TypeError: there is no such setting.
        """
        node = self._spec_of(name)
        changed = with_settings(self.name, node, changes)
        return self._changed({**self._nodes, name: changed}, rerouted(self._edges, node, changed))

    def without(self, name: str) -> "Graph":
        """Give a graph without this node, its neighbours joined. ``build`` tells whether their types meet.

        Raises:
            KeyError: there is no such node.
            ValueError: the node has not one input and one output, or its neighbours are connected already.
        """
        self._spec_of(name)
        return self._changed(*bridged(self.name, self._nodes, self._edges, name))

    def spec(self) -> Spec:
        """The graph as data. A setting of a type that it cannot have stands there as if it were not set."""
        return mended(self._declared())[0].with_member_types(Gathered)

    def build(self, *, quiet: bool = False) -> Plan:
        """Prove the graph and give the plan that runs.

        What is allowed and probably not meant, the warnings of the plan, is told to the logger ``headrace``, a line each;
        untyped edges only at the level of information.

        Args:
            quiet: leave the warnings to the caller.

        Raises:
            BuildError: with every fault found.
        """
        spec, wrong = mended(self._declared())
        plan = check(spec.with_member_types(Gathered), self._twice, wrong)
        for warning in () if quiet else plan.warnings:
            _LOG.log(logging.INFO if NOT_CHECKED in warning else logging.WARNING, "%s", warning)
        return plan

    def draw(self) -> str:
        """Draw the graph as text, also where it cannot be built."""
        return draw(self.spec())

    def _declared(self) -> Spec:
        edges, feedback = tuple(self._edges.values()), tuple(self._feedback)
        return Spec(self.name, self._pools, self._nodes, edges, self._cells, feedback, self._rates, self._where)

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

    def _gives(self, upstream: Node[Any, Any]) -> Any:
        return self._nodes[upstream.name].gives if node(upstream).name in self._nodes else UNTYPED

    def _changed(self, nodes: dict[str, NodeSpec], edges: Edges) -> "Graph":
        graph = Graph(self.name, self._pools, self._rates)
        graph.origin = self.origin
        graph._nodes, graph._edges, graph._cells, graph._where = nodes, edges, dict(self._cells), self._where
        graph._feedback, graph._twice = list(self._feedback), list(self._twice)
        return graph

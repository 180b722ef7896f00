"""The whole moment of a running graph, and every transition on it. Synchronous: between two calls nothing is half done."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._plan import Plan
from .._policy import Failure
from .._spec import NodeSpec
from .budget import Spending
from .cell import Cell
from .channel import Channel
from .freshness import Admission
from .groups import Closed, Groups
from .item import Item, Wake
from .meter import Meter
from .pools import Pools


class NodeState:
    """One node of a running graph.

    Attributes:
        spec: its declaration.
        depth: distance from the sources.
        input: edge before it, ``None`` for a source.
        output: edge behind it, ``None`` for a sink.
        meter: its counts and times.
        budget: whether it still gets anywhere.
        groups: the pair's groups, for a repeat, a group, and every node between.
        admission: for a repeat, its group and every node behind it up to the sink of a feedback edge with freshness.
        cell: what the node reads.
        ready: for a group, closed groups that wait for room.
        complete: whether its line has all it was asked for, so that what is still on its way is surplus.
        turns: for a stage that keeps order, positions of the leases out.
        on_turn: called when one of them ended; set by the node's workers.
    """

    __slots__ = (
        "admission", "budget", "cell", "complete", "depth", "groups", "input", "meter", "on_turn", "output",
        "ready", "spec", "turns",
    )  # fmt: skip

    def __init__(self, spec: NodeSpec, depth: int) -> None:
        self.spec, self.depth = spec, depth
        self.input: Channel | None = None
        self.output: Channel | None = None
        self.meter = Meter()
        self.budget = Spending(spec)
        self.groups: Groups | None = None
        self.admission: Admission | None = None
        self.cell: Cell | None = None
        self.ready: deque[Item] = deque()
        self.complete = False
        self.turns: set[int] = set()
        self.on_turn: Wake | None = None


class State:
    """All nodes, edges, pools, cells and groups.

    Attributes:
        on_group_dropped: called with the groups and the birth number of a group that was given up, whose members may still
            be at work; set by the run.
    """

    def __init__(self, plan: Plan) -> None:
        spec = plan.spec
        depths = spec.depths()
        self.plan = plan
        self.nodes: dict[str, NodeState] = {name: NodeState(node, depths[name]) for name, node in spec.nodes.items()}
        self.pools = Pools(spec.pools)
        self.cells: dict[str, Cell] = {name: Cell(name) for name in spec.cells}
        self.on_group_dropped: Callable[[Groups, int], None] | None = None
        self._connect(plan)
        self._pair(plan)
        self._admit(plan)

    def _connect(self, plan: Plan) -> None:
        for edge in plan.spec.edges:
            bound = plan.capacities[edge.name]
            assert bound.items is not None
            channel = Channel(edge.name, bound.items, bound.cost, bound.measure)
            self.nodes[edge.source].output = channel
            self.nodes[edge.target].input = channel
        for node in self.nodes.values():
            if node.spec.reads is not None:
                node.cell = self.cells[node.spec.reads]

    def _pair(self, plan: Plan) -> None:
        for name, node in self.nodes.items():
            if node.spec.kind == "group":
                groups = Groups(node.spec.missing)
                for inside in self._back_to(plan, name):
                    self.nodes[inside].groups = groups

    def _admit(self, plan: Plan) -> None:
        for feedback in plan.spec.feedback:
            collect = plan.spec.nodes[feedback.source].collect
            if feedback.freshness is None or collect is None:
                continue
            path = self._back_to(plan, feedback.source)
            groups = self.nodes[path[-1]].groups
            assert groups is not None

            def version_of(birth: int, groups: Groups = groups) -> int | None:
                return groups.open[birth].version if birth in groups.open else None

            admission = Admission(feedback.freshness, collect.items, collect.steps, version_of, feedback.cell)
            for name in path:
                self.nodes[name].admission = admission
                self.nodes[name].budget.holds_tickets = True

    def _back_to(self, plan: Plan, name: str) -> list[str]:
        """Names from a node back to the repeat that belongs to it."""
        target = plan.spec.opener(name)
        path = [name]
        while path[-1] != target:
            path.append(plan.spec.before(path[-1])[0].source)
        return path

    @property
    def commits(self) -> int:
        """Transitions so far that moved an item; the stall watch looks at it."""
        moved = 0
        for node in self.nodes.values():
            moved += node.meter.finished + node.meter.dropped.total()
            moved += 0 if node.output is None else node.output.put_count
        return moved

    def lease(self, node: NodeState, index: int = 0) -> Item:
        """Begin an attempt: take an item and stamp it with the version in force."""
        assert node.input is not None
        item = node.input.take(index)
        if node.spec.order == "input":
            node.turns.add(item.position)
        if node.cell is None:
            item.seen = None
        else:
            item.seen = node.cell.version
            stamp = self.stamp(node, item)
            if stamp is not None and node.groups is not None and item.member is not None:
                node.groups.dispatched(item.birth, item.member, stamp)
        return item

    def stamp(self, node: NodeState, item: Item) -> int | None:
        """Version of what this attempt makes: the oldest that went into it, of the cell that bounds its age."""
        before = item.version
        if item.seen is None or (node.admission is not None and node.admission.cell != node.spec.reads):
            return before
        return item.seen if before is None else min(before, item.seen)

    def has_turn(self, node: NodeState, item: Item) -> bool:
        """Whether nothing older than this lease is out or waiting, so that its outputs may leave in order."""
        assert node.input is not None
        oldest = node.input.oldest
        return item.position == min(node.turns) and (oldest is None or oldest > item.position)

    def orphaned(self, node: NodeState, item: Item) -> bool:
        """Whether an item belongs to a group that is closed already, so that work on it is lost."""
        return item.member is not None and node.groups is not None and item.birth not in node.groups.open

    def give_back(self, node: NodeState, item: Item) -> None:
        """End an attempt that was cancelled: the item returns to its place."""
        assert node.input is not None
        self._end_turn(node, item)
        node.input.give_back(item)
        node.meter.given_back += 1

    def emit(self, node: NodeState, items: Sequence[Item]) -> None:
        """Put items made without an input: by a source, or a retry issued again."""
        assert node.output is not None
        node.output.put(items)

    def commit(self, node: NodeState, item: Item, outputs: Sequence[Item]) -> None:
        """End an attempt that succeeded: the input is settled and the outputs are on the edge, in one step."""
        assert node.input is not None
        if not outputs and node.output is not None and (item.member is not None or node.admission is not None):
            self.drop(node, item, "no output")
            return
        self._end_turn(node, item)
        node.input.settle(item)
        node.meter.finished += 1
        if node.output is not None and outputs:
            node.output.put(outputs)

    def pass_on(self, node: NodeState, item: Item, value: Any) -> None:
        """``commit`` of one value made of one: the item itself travels on. For no edge with a cost, and no order to keep."""
        assert node.input is not None
        assert node.output is not None
        if item.seen is not None:
            item.version = self.stamp(node, item)
        node.input.settle(item)
        node.meter.finished += 1
        item.value, item.position, item.attempt, item.retries = value, node.output.put_count, 0, 0
        node.output.buffer.append(item)
        node.output.added(1)

    def drop(self, node: NodeState, item: Item, reason: str, failure: Failure | None = None) -> None:
        """End an attempt for good: counted by reason, reported to the item's barrier, its ticket returned."""
        assert node.input is not None
        self._end_turn(node, item)
        node.input.settle(item)
        node.meter.dropped[reason] += 1
        if item.member is not None and node.groups is not None:
            self._close(node, node.groups.report(item, failure or Failure(reason, reason)))
        elif node.admission is not None and node.spec.kind != "repeat":
            node.admission.drop(item.birth)

    def open_group(self, node: NodeState, item: Item) -> list[Item]:
        """Begin a group from a leased item; the members are to be committed in the same moment."""
        assert node.groups is not None
        members = node.groups.begin(item, node.spec.size)
        if node.admission is not None:
            node.admission.opened(members[0].birth)
        return members

    def absorb(self, node: NodeState, item: Item) -> None:
        """A member reached its barrier."""
        assert node.input is not None
        assert node.groups is not None
        node.input.settle(item)
        node.meter.finished += 1
        late = node.groups.late
        self._close(node, node.groups.report(item, None))
        if node.groups.late > late:
            node.meter.lost["late"] += 1
        elif item.failed is not None:
            node.meter.lost[item.failed] += 1

    def release_ready(self, node: NodeState) -> Item:
        """Put the oldest closed group on the edge; the caller has seen that it fits."""
        item = node.ready.popleft()
        self.emit(node, [item])
        return item

    def _close(self, node: NodeState, closed: Closed | None) -> None:
        if closed is None:
            return
        barrier = next(n for n in self.nodes.values() if n.spec.kind == "group" and n.groups is node.groups)
        if closed.item is not None:
            barrier.budget.kept()
            barrier.ready.append(closed.item)
            if barrier.admission is not None:
                barrier.admission.gathered(closed.birth, closed.item.version)
        else:
            barrier.meter.dropped[closed.reason] += 1
            if closed.discarded:
                barrier.meter.lost["group dropped"] += closed.discarded
            if barrier.admission is not None:
                barrier.admission.drop(closed.birth)
            # A group only ages while steps are completed, and at the end of its line it is given up because all is done.
            if closed.reason != "stale" and not barrier.complete:
                barrier.budget.record("failed", closed.reason)
            if self.on_group_dropped is not None and node.groups is not None:
                self.on_group_dropped(node.groups, closed.birth)
        if barrier.input is not None:
            barrier.input.consumers.wake_first()
        if node.groups is not None and node.groups.on_retry is not None:
            node.groups.on_retry()

    def take_for_step(self, node: NodeState, index: int) -> Item:
        """A collecting sink takes an item into the step under way."""
        item = self.lease(node, index)
        if node.admission is not None:
            node.admission.take(item.birth)
        return item

    def give_back_step(self, node: NodeState, items: Sequence[Item]) -> None:
        """The step under way was given up: its items return."""
        for item in reversed(items):
            self.give_back(node, item)
            if node.admission is not None:
                node.admission.give_back(item.birth, item.version)

    def commit_step(self, node: NodeState, items: Sequence[Item]) -> None:
        """A step is complete: its items are settled."""
        assert node.input is not None
        for item in items:
            node.input.settle(item)
        node.meter.finished += len(items)
        node.meter.steps += 1
        if node.admission is not None:
            node.admission.trained([item.birth for item in items])
            self._give_up_stale(node.admission)

    def _give_up_stale(self, admission: Admission) -> None:
        """With ``late="drop"`` an open group that is too old already is closed, so that no further member of it starts."""
        barrier = next((n for n in self.nodes.values() if n.spec.kind == "group" and n.admission is admission), None)
        if admission.freshness.late == "drop" and barrier is not None and barrier.groups is not None:
            for birth, group in list(barrier.groups.open.items()):
                if admission.too_old(group.version):
                    self._close(barrier, barrier.groups.give_up(birth, "stale"))

    def complete(self, sink: NodeState) -> None:
        """A sink has all its steps. When no other waits for steps, the lines without a number of steps are done too."""
        name: str | None = sink.spec.name
        while name is not None:
            self.nodes[name].complete = True
            before = self.plan.spec.before(name)
            name = before[0].source if before else None
        bounded = [
            node for node in self.nodes.values() if node.spec.collect is not None and node.spec.collect.steps is not None
        ]
        if all(node.complete for node in bounded):
            for node in self.nodes.values():
                node.complete = True

    def _end_turn(self, node: NodeState, item: Item) -> None:
        if node.spec.order == "input":
            node.turns.remove(item.position)
            if node.on_turn is not None:
                node.on_turn()

    def faults(self) -> list[str]:
        """Counts that do not add up, as text; empty when the ledger balances."""
        found: list[str] = []
        for name, node in self.nodes.items():
            meter, edge = node.meter, node.input
            if edge is not None:
                ended = meter.finished + meter.dropped.total() - self._group_drops(node)
                if edge.taken != ended + edge.leased:
                    found.append(f"{name}: took {edge.taken}, but {ended} ended and {edge.leased} are out")
                if edge.put_count != edge.taken + len(edge):
                    found.append(f"{edge.name}: {edge.put_count} put, {edge.taken} taken and {len(edge)} waiting")
            if node.admission is not None and node.admission.held > node.admission.capacity:
                found.append(f"{name}: {node.admission.held} of {node.admission.capacity} tickets are out")
        for pool, size in self.pools.sizes.items():
            if self.pools.free[pool] > size:
                found.append(f"pool {pool}: {self.pools.free[pool]} of {size} units are free")
        return found

    def leftovers(self) -> Mapping[str, int]:
        """Items that are in no terminal state, by place; empty when a run is complete."""
        places: dict[str, int] = {}
        for name, node in self.nodes.items():
            if node.input is not None:
                places[node.input.name] = len(node.input)
                places[f"{name} (leased)"] = node.input.leased
            if node.spec.kind == "group" and node.groups is not None:
                places[f"{name} (open groups)"] = len(node.groups.open)
                places[f"{name} (waiting for room)"] = len(node.ready)
        return {place: count for place, count in places.items() if count}

    @staticmethod
    def _group_drops(node: NodeState) -> int:
        # A barrier counts dropped groups among its drops; they are no inputs of its own.
        return node.meter.dropped.total() if node.spec.kind == "group" else 0

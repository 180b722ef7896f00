"""The whole moment of a running graph, and every transition on it. Synchronous: between two calls nothing is half done."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._plan import Plan
from .._policy import Failure
from .cell import Cell
from .channel import Channel
from .fans import fan_of
from .freshness import Admission
from .groups import Closed, Groups
from .item import Item, Wake
from .ledger import faults, leftovers
from .node import NodeState
from .observer import Observer
from .pools import Pools

_HYSTERESIS = 8
"""Capacity from which on a source is woken once for many items."""


class State:
    """All nodes, edges, pools, cells and groups.

    Attributes:
        on_unwanted: called when items may have become unwanted on which attempts are under way; set by the run.
        on_end: called with (node, values, reason) of items that came to their end, see ``Tally.ended``; set where one is kept.
        observer: hears of groups and of what is given up; ``None`` for nobody.
    """

    def __init__(self, plan: Plan) -> None:
        spec = plan.spec
        depths = spec.depths()
        self.plan = plan
        self.nodes: dict[str, NodeState] = {name: NodeState(node, depths[name]) for name, node in spec.nodes.items()}
        self.pools = Pools(spec.pools, spec.rates)
        self.cells: dict[str, Cell] = {name: Cell(name) for name in spec.cells}
        self.on_unwanted: Wake | None = None
        self.on_end: Callable[[str, list[Any], str | None], None] | None = None
        self.observer: Observer | None = None
        self._connect(plan)
        self._pair(plan)
        self._admit(plan)

    def _connect(self, plan: Plan) -> None:
        for edge in plan.spec.edges:
            bound = plan.capacities[edge.name]
            assert bound.items is not None
            channel = Channel(edge.name, bound.items, bound.cost, bound.measure)
            if (
                bound.items >= _HYSTERESIS
                and self.nodes[edge.source].spec.kind == "source"
                and not plan.spec.nodes[edge.target].key
            ):
                # What a source would give next can wait until half the edge is free; of any other node it may be the very
                # item that somebody needs to go on.
                channel.low_water = bound.items // 2
            self.nodes[edge.source].outputs.append(channel)
            self.nodes[edge.target].inputs.append(channel)
        meeting = plan.spec.sources_that_meet()
        for name, node in self.nodes.items():
            node.input = node.inputs[0] if node.inputs else None
            node.output = node.outputs[0] if node.outputs else None
            node.fan = fan_of(node.spec, node.inputs, node.outputs)
            node.prefix = (meeting.index(name),) if name in meeting else ()
            if node.spec.reads is not None:
                node.cell = self.cells[node.spec.reads]

    def _pair(self, plan: Plan) -> None:
        for name, node in self.nodes.items():
            if node.spec.kind == "group":
                groups = Groups(node.spec.missing, plan.spec.retries_aside(name))
                for inside in plan.spec.path(name):
                    self.nodes[inside].groups = groups

    def _admit(self, plan: Plan) -> None:
        for feedback in plan.spec.feedback:
            collect = plan.spec.nodes[feedback.source].collect
            if feedback.freshness is None or collect is None:
                continue
            path = plan.spec.path(feedback.source)
            groups = self.nodes[path[0]].groups
            assert groups is not None

            def version_of(birth: int, groups: Groups = groups) -> int | None:
                return groups.open[birth].version if birth in groups.open else None

            admission = Admission(feedback.freshness, collect.items, collect.steps, version_of, feedback.cell)
            for name in path:
                self.nodes[name].admission = admission
                self.nodes[name].budget.holds_tickets = True

    @property
    def commits(self) -> int:
        """Transitions so far that moved an item; the stall watch looks at it."""
        moved = 0
        for node in self.nodes.values():
            moved += node.meter.finished + node.meter.dropped.total()
            moved += sum(edge.put_count for edge in node.outputs)
        return moved

    def lease(self, node: NodeState, index: int = 0) -> Item:
        """Begin an attempt: take an item and stamp it with the version in force."""
        assert node.input is not None
        item = node.input.take(index)
        if node.spec.order == "input" or node.spec.key is not None:
            node.began(item)
        item.seen = None
        if node.cell is not None:
            self.saw(node, item, node.cell.version)
        return item

    def saw(self, node: NodeState, item: Item, version: int) -> None:
        """What comes of an attempt is made with this version of the cell, or was, where a journal stands in for it."""
        item.seen = version
        stamp = self.stamp(node, item)
        if stamp is None or node.groups is None or item.member is None:
            return
        if node.groups.dispatched(item.birth, item.member, stamp) and node.admission is not None:
            node.admission.changed()  # the group is younger

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
        return item.position == node.first_turn and (oldest is None or oldest > item.position)

    def unwanted(self, node: NodeState, item: Item) -> str:
        """Why work on an item would be lost; empty where it is wanted."""
        if node.complete:
            return "surplus"
        if item.member is not None and node.groups is not None:
            return "" if item.birth in node.groups.open else "group closed"
        if node.admission is not None and node.admission.freshness.late == "drop" and node.admission.too_old(item.version):
            return "stale"
        return ""

    def give_back(self, node: NodeState, item: Item) -> None:
        """End an attempt that was cancelled: the item returns to its place."""
        assert node.input is not None
        node.ended(item)
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
        node.ended(item)
        node.input.settle(item)
        node.meter.finished += 1
        if node.output is not None and outputs:
            node.output.put(outputs)
        elif item.member is None:
            self._end(node, [item], None if node.output is None else "no output")

    def pass_on(self, node: NodeState, item: Item, value: Any) -> None:
        """``commit`` of one value made of one: the item itself travels on. For no edge with a cost, and no order to keep."""
        assert node.input is not None
        assert node.output is not None
        output = node.output
        if item.seen is not None:
            item.version = self.stamp(node, item)
        node.input.settle(item)
        node.meter.finished += 1
        item.value, item.position = value, output.put_count
        if item.attempt or item.retries:
            item.attempt = item.retries = 0
        output.buffer.append(item)
        output.added(1)

    def pass_along(self, node: NodeState) -> Item | None:
        """Have a node with several edges move one item.

        Returns:
            The item that went, ``None`` where all have to wait.

        Raises:
            Exception: what the user's ``by`` of a route raised; nothing was moved.
        """
        assert node.fan is not None
        move = node.fan.choose()
        if move is None:
            return None
        source, targets = move
        item = source.take()
        source.settle(item)
        node.meter.finished += 1
        for edge, copy in zip(targets, node.fan.copies(item), strict=True):
            edge.put([copy])
        node.fan.moved(source)
        return item

    def drop(
        self, node: NodeState, item: Item, reason: str, failure: Failure | None = None, edge: Channel | None = None
    ) -> None:
        """End an attempt for good: counted by reason, reported to the item's barrier, its ticket returned.

        Args:
            node: where it was made.
            item: what it was made at.
            reason: why, in few words.
            failure: what the barrier learns; made of the reason where there is none.
            edge: where the item came from, for a node with several edges before it.
        """
        node.ended(item)
        edge = node.input if edge is None else edge
        assert edge is not None
        edge.settle(item)
        self._dropped(node, item, reason)
        if item.member is not None and node.groups is not None:
            self._report(node, item, failure or Failure(reason, reason))
            return
        if node.admission is not None and node.spec.kind != "repeat":
            node.admission.drop(item.birth)
        self._end(node, [item], reason)

    def open_group(self, node: NodeState, item: Item) -> list[Item]:
        """Begin a group from a leased item; the members are to be committed in the same moment."""
        assert node.groups is not None
        members = node.groups.begin(item, node.spec.size)
        if self.observer is not None:
            self.observer.opened(self._barrier(node).spec.name, members[0].birth, item, len(members))
        if node.admission is not None:
            node.admission.opened(members[0].birth)
        return members

    def absorb(self, node: NodeState, item: Item) -> None:
        """A member reached its barrier."""
        assert node.input is not None
        assert node.groups is not None
        node.input.settle(item)
        node.meter.finished += 1
        late, again = node.groups.late, node.groups.again
        self._report(node, item, None)
        if node.groups.late > late:
            node.meter.lost["late"] += 1
        elif item.failed is not None and node.groups.again == again:
            node.meter.lost[item.failed] += 1

    def release_ready(self, node: NodeState) -> Item:
        """Put the oldest closed group on the edge; the caller has seen that it fits."""
        item = node.ready.popleft()
        self.emit(node, [item])
        return item

    def _report(self, node: NodeState, item: Item, failure: Failure | None) -> None:
        """A member ended; its barrier counts it where it is issued again."""
        assert node.groups is not None
        again = node.groups.again
        closed = node.groups.report(item, failure)
        self._barrier(node).meter.retried += node.groups.again - again
        self._close(node, closed)

    def _close(self, node: NodeState, closed: Closed | None) -> None:
        if closed is None:
            return
        barrier = self._barrier(node)
        if self.observer is not None:
            self.observer.closed(barrier.spec.name, closed)
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
            if closed.origin is not None:
                self._end(barrier, [closed.origin], closed.reason)
            # A group only ages while steps are completed, and at the end of its line it is given up because all is done.
            if closed.reason != "stale" and not barrier.complete:
                barrier.budget.record("failed", closed.reason)
            self._tell_unwanted()
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
        self._end(node, items, None)
        if node.admission is not None:
            node.admission.trained([item.birth for item in items])
            self._give_up_stale(node.admission)

    def _give_up_stale(self, admission: Admission) -> None:
        """With ``late="drop"`` what is too old already is given up wherever it is, so that its ticket is free at once."""
        if admission.freshness.late != "drop":
            return
        for node in self.nodes.values():
            if node.admission is not admission:
                continue
            if node.spec.kind == "group" and node.groups is not None:
                for birth, group in list(node.groups.open.items()):
                    if admission.too_old(group.version):
                        self._close(node, node.groups.give_up(birth, "stale"))
            elif node.groups is None:  # behind the barrier
                self._drop_stale(node, admission)
        self._tell_unwanted()

    def _drop_stale(self, node: NodeState, admission: Admission) -> None:
        for edge in node.inputs:
            index = 0
            while index < len(edge.buffer):
                if admission.too_old(edge.buffer[index].version):
                    item = edge.take(index)
                    edge.settle(item)
                    self._dropped(node, item, "stale")
                    admission.drop(item.birth)
                    self._end(node, [item], "stale")
                else:
                    index += 1

    def line_ended(self, sink: NodeState) -> None:
        """A sink takes no more steps: its cells get no newer value than was published."""
        for feedback in self.plan.spec.feedback:
            if feedback.source == sink.spec.name:
                self.cells[feedback.cell].end()

    def complete(self, sink: NodeState) -> None:
        """A sink has all its steps: so have the nodes whose items reach only such sinks, and, after the last of them, all."""
        sink.completed()
        wanting = {
            name
            for name, node in self.nodes.items()
            if node.spec.collect is not None and node.spec.collect.steps is not None and not node.complete
        }
        for name, node in self.nodes.items():
            reached = self.plan.spec.sinks_of(name)
            counted = {other for other in reached if self.nodes[other].complete or other in wanting}
            if not wanting or (counted and not counted & wanting):
                node.completed()
        self._tell_unwanted()

    def _barrier(self, node: NodeState) -> NodeState:
        """The group node of the pair that a node is in."""
        return next(n for n in self.nodes.values() if n.spec.kind == "group" and n.groups is node.groups)

    def _dropped(self, node: NodeState, item: Item, reason: str) -> None:
        node.meter.dropped[reason] += 1
        if self.observer is not None:
            self.observer.dropped(node.spec.name, item, reason)

    def _end(self, node: NodeState, items: Sequence[Item], reason: str | None) -> None:
        if self.on_end is not None:
            self.on_end(node.spec.name, [item.value for item in items], reason)

    def _tell_unwanted(self) -> None:
        if self.on_unwanted is not None:
            self.on_unwanted()

    def faults(self) -> list[str]:
        """Counts that do not add up, as text; empty when the ledger balances."""
        return faults(self.nodes, self.pools)

    def leftovers(self) -> Mapping[str, int]:
        """Items that are in no terminal state, by place; empty when a run is complete."""
        return leftovers(self.nodes)

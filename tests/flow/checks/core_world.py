"""The core at work without a loop, long because every move of every kind of worker is an operation on the one state.

The books (``core_books``) are kept beside it.

Each operation takes a number that picks among what could be done, and does nothing where nothing can. ``check`` compares.
"""

import random
from collections import Counter
from typing import Any

from core_books import Books, Travel
from core_look import plain, seen
from core_shapes import number_of, plan_of

from flow._core.channel import Channel
from flow._core.item import Item
from flow._core.moment import capture, restore
from flow._core.node import NodeState
from flow._core.pools import Request
from flow._core.state import State
from flow._policy import Failure

ALWAYS = (
    "draw", "draw", "take", "take", "take", "commit", "commit", "commit", "pass_on", "drop", "give_back", "retry", "close",
    "end_sources", "resume",
)  # fmt: skip
"""Operations of every graph, those more often of use named twice."""
SPECIAL = {
    "group": (*["open_group"] * 3, *["absorb"] * 3, "release_ready", "release_ready", "reissue"),
    "fan": ("pass_along", "pass_along", "pass_along", "pass_along"),
    "collect": (*["take_for_step"] * 3, "finish_step", "finish_step", "finish_step", "give_back_step", "surplus"),
    "cell": ("load", "load", "load"),
    "needs": ("request", "request", "release", "release", "resize", "pass_time"),
}  # fmt: skip
"""Operations of graphs that have such nodes."""


class World:
    """A state of a graph by its name, and its books."""

    def __init__(self, shape: str) -> None:
        self.plan = plan_of(shape)
        self.books = Books(self.plan)
        self.drawn: Counter[str] = Counter()
        self.exhausted = False
        self.now = 0.0
        self.moments: list[tuple[Any, Any]] = []
        self._adopt(State(self.plan))
        self.operations = ALWAYS + tuple(name for kind, names in SPECIAL.items() if self._has(kind) for name in names)
        for cell in self.state.cells.values():
            cell.start("first")

    def _has(self, kind: str) -> bool:
        nodes = self.nodes.values()
        return {
            "group": any(node.groups for node in nodes), "fan": any(node.fan for node in nodes), "cell": bool(self.state.cells),
            "collect": any(node.spec.collect for node in nodes), "needs": any(node.spec.needs for node in nodes),
        }[kind]  # fmt: skip

    def _adopt(self, state: State) -> None:
        self.state, self.nodes = state, state.nodes
        self.leases: list[tuple[NodeState, Item]] = []
        self.steps: dict[str, list[Item]] = {n: [] for n, node in state.nodes.items() if node.spec.collect is not None}
        self.loading: dict[str, tuple[int, Any]] = {}
        self.requests: list[tuple[Request, dict[str, int]]] = []
        self.busy: dict[str, set[object]] = {name: set() for name in state.nodes}
        self.passed: Counter[Channel] = Counter()
        state.pools.clock = lambda: self.now
        self.owed: Counter[str] = Counter()  # units by which a pool shrank below what is held

    # --- sources and stages ---

    def draw(self, pick: int) -> None:
        sources = [n for n in self.nodes.values() if n.spec.kind == "source" and not n.complete and not self.exhausted]
        if not sources:
            return
        node = sources[pick % len(sources)]
        number = self.drawn[node.spec.name]
        assert node.output is not None
        item = Item(number, (*node.prefix, number), number)
        if self._fits(node.output, [item]):
            self.drawn[node.spec.name] += 1
            self.state.emit(node, [item])
            self.books.put(item.path, node.output.name, Travel("", birth=number))

    def take(self, pick: int) -> None:
        kinds = ("stage", "sink", "repeat")
        able = [
            n for n in self.nodes.values() if n.spec.kind in kinds and n.spec.collect is None and n.input and n.input.buffer
        ]
        able = [n for n in able if n.spec.kind != "repeat" or self._may_open(n)]
        if not able:
            return
        node = able[pick % len(able)]
        assert node.input is not None
        index, waiting = node.next_index(), list(node.input.buffer)
        if node.spec.key is not None:
            keys = [node.spec.key(item.value) for item in waiting]
            assert index == next((i for i, key in enumerate(keys) if key not in self.busy[node.spec.name]), None)
        if index is not None:
            self._lease(node, index)

    def _lease(self, node: NodeState, index: int) -> Item:
        item = self.state.lease(node, index)
        stamp = self.books.leased(node.spec.name, item.path)
        assert self.state.stamp(node, item) == stamp
        if node.spec.key is not None:
            self.busy[node.spec.name].add(node.spec.key(item.value))
        self.leases.append((node, item))
        return item

    def _may_open(self, node: NodeState) -> bool:
        return node.admission is None or node.admission.may_open

    def _pick(self, pick: int, *kinds: str) -> tuple[NodeState, Item] | None:
        """A lease; often the newest, so that some stay out for long."""
        able = [entry for entry in self.leases if entry[0].spec.kind in kinds]
        return None if not able else able[-1] if pick & 0x80000 else able[pick % len(able)]

    def _over(self, node: NodeState, item: Item) -> None:
        self.leases.remove((node, item))
        if node.spec.key is not None:
            self.busy[node.spec.name].remove(node.spec.key(item.value))

    def commit(self, pick: int) -> None:
        """One output, sometimes marked as failed; or none; of a line, two."""
        found = self._pick(pick, "stage", "sink")
        if found is None or not self._has_turn(*found):
            return
        node, item = found
        name, stamp = node.spec.name, self.state.stamp(node, item)
        if node.output is None:
            self._over(node, item)
            self.state.commit(node, item, ())
            self.books.end(item.path, "done")
            return
        mark, count = ("bad" if pick % 11 == 0 else item.failed), 0 if pick % 13 == 0 else 1
        outputs = [item.derive(item.value, stamp, mark)] * count
        if not self._fits(node.output, outputs):
            return
        self._over(node, item)
        self.state.commit(node, item, outputs)
        if not outputs and (item.member is not None or node.admission is not None):
            self.books.dropped(name, item.path, "no output")
        elif not outputs:
            self.books.end(item.path, "done")
        else:
            travel = self.books.items[item.path]
            travel.version, travel.failed = stamp, mark
            self.books.put(item.path, node.output.name, travel)

    def pass_on(self, pick: int) -> None:
        found = self._pick(pick, "stage")
        if found is None:
            return
        node, item = found
        output = node.output
        assert output is not None
        plain = node.spec.order == "any" and node.spec.key is None and output.max_cost is None
        if not plain or output.room <= 0:
            return
        assert self._fits(output, [item])
        travel = self.books.items[item.path]
        travel.version = self.state.stamp(node, item)
        self._over(node, item)
        self.state.pass_on(node, item, item.value)
        self.books.put(item.path, output.name, travel)

    def _has_turn(self, node: NodeState, item: Item) -> bool:
        if node.spec.order != "input" or node.input is None:
            return True
        travels = [t for t in self.books.items.values() if t.edge == node.input.name and t.place.endswith(node.input.name)]
        turn = self.books.items[item.path].position == min(t.position for t in travels)
        assert self.state.has_turn(node, item) == turn
        return turn

    def drop(self, pick: int) -> None:
        """A filter, a failure, or what is unwanted."""
        found = self._pick(pick, "stage", "sink", "repeat")
        if found is not None and pick % 5 == 0:
            self._over(*found)
            self.state.drop(*found, "broken", Failure("broken", "") if pick % 2 else None)
            self.books.dropped(found[0].spec.name, found[1].path, "dropped")

    def give_back(self, pick: int) -> None:
        found = self._pick(pick, "stage", "sink", "repeat")
        if found is not None and pick % 3 == 0:
            self._over(*found)
            self.state.give_back(*found)
            self.books.given_back(found[1].path)

    def retry(self, pick: int) -> None:
        found = self._pick(pick, "stage")
        if found is None:
            return
        node, item = found
        assert node.input is not None
        again = node.input.retried(item)
        self.leases[self.leases.index(found)] = (node, again)
        node.meter.retried += 1
        travel = self.books.items[item.path]
        travel.retry, travel.retries, travel.attempt = travel.retry + 1, travel.retries + 1, 0

    # --- pairs ---

    def open_group(self, pick: int) -> None:
        found = self._pick(pick, "repeat")
        if found is None or not self._may_open(found[0]):
            return
        node, item = found
        assert node.output is not None
        if self._fits(node.output, [item] * node.spec.size):
            self._over(node, item)
            members = self.state.open_group(node, item)
            self.state.commit(node, item, members)
            made = self.books.open(node.spec.name, item.path, node.spec.size)
            assert [(m.path, m.birth, m.member) for m in members] == [(path, t.birth, t.member) for path, t in made]
            for path, travel in made:
                self.books.put(path, node.output.name, travel)

    def absorb(self, pick: int) -> None:
        able = [n for n in self.nodes.values() if n.spec.kind == "group" and n.input and n.input.buffer]
        if not able:
            return
        node = able[pick % len(able)]
        item = self.state.lease(node)
        self.state.absorb(node, item)
        travel = self.books.items[item.path]
        self.books.report(node.spec.name, item.path, travel, failed=travel.failed is not None, kept=True)

    def release_ready(self, pick: int) -> None:
        for node in self.nodes.values():
            if node.ready and node.output is not None and self._fits(node.output, [node.ready[0]]):
                item = self.state.release_ready(node)
                self.books.put(item.path, node.output.name, self.books.items[item.path])

    def reissue(self, pick: int) -> None:
        for node in self.nodes.values():
            groups = node.groups
            if node.spec.kind != "repeat" or not groups or not groups.retries or node.output is None:
                continue
            if self._fits(node.output, [groups.retries[0]]):
                item = groups.retries.popleft()
                self.state.emit(node, [item])
                self.books.put(item.path, node.output.name, self.books.items[item.path])

    # --- fans ---

    def pass_along(self, pick: int) -> None:
        able = [n for n in self.nodes.values() if n.fan is not None and any(edge.buffer for edge in n.inputs)]
        if not able:
            return
        node = able[pick % len(able)]
        if pick % 17 == 0:
            self._fail_at(node)
            return
        heads = {edge: edge.buffer[0] for edge in node.inputs if edge.buffer}
        room = {edge: [self._fits(edge, [item]) for item in heads.values()] for edge in node.outputs}
        before = {edge: edge.put_count for edge in node.outputs}
        item = self.state.pass_along(node)
        targets = [edge for edge in node.outputs if edge.put_count > before[edge]]
        if item is None:
            assert not targets
            assert not all(any(able) for able in room.values()), f"{node.spec.name} waits although there is room"
            return
        source = next(edge for edge, head in heads.items() if head is item)
        assert all(room[edge][list(heads).index(source)] for edge in targets), f"{node.spec.name} puts where there is no room"
        self._check_choice(node, source, targets, list(heads))
        travel = self.books.items.pop(item.path)
        copies = [(*item.path, i) if node.spec.kind == "broadcast" else item.path for i in range(len(targets))]
        for edge, path in zip(targets, copies, strict=True):
            self.books.put(path, edge.name, Travel(**vars(travel)))

    def _check_choice(self, node: NodeState, source: Channel, targets: list[Channel], heads: list[Channel]) -> None:
        kind, spec = node.spec.kind, node.spec
        if kind == "broadcast":
            assert targets == node.outputs
            return
        assert len(targets) == 1
        if kind == "route" and spec.by is not None:
            moved = targets[0].buffer[-1]
            assert targets[0].name == f"{spec.name}->{spec.branches[spec.by(moved.value)]}"
        lines = heads if kind == "merge" else [e for e in node.outputs if len(e) < e.max_items or e in targets]
        chosen = source if kind == "merge" else targets[0]
        for edge in node.inputs if kind == "merge" else node.outputs:
            self.passed[edge] = self.passed[edge] + 1 if edge in lines and edge is not chosen else 0
            most = (spec.patience or 0) + len(node.inputs) - 2 if kind == "merge" else len(node.outputs) - 1
            assert kind == "route" or self.passed[edge] <= most, f"{edge.name} was passed over {self.passed[edge]} times"

    def _fail_at(self, node: NodeState) -> None:
        edge = next(edge for edge in node.inputs if edge.buffer)
        item = edge.take()
        self.state.drop(node, item, "KeyError", Failure("KeyError", ""), edge)
        self.books.dropped(node.spec.name, item.path, "dropped")

    # --- sinks that collect ---

    def take_for_step(self, pick: int) -> None:
        able = [n for n in self.nodes.values() if n.spec.collect is not None and n.input and n.input.buffer and not n.complete]
        able = [n for n in able if len(self.steps[n.spec.name]) < n.spec.collect.items]  # type: ignore[union-attr]
        if not able:
            return
        node = able[pick % len(able)]
        name, admission = node.spec.name, node.admission
        assert node.input is not None
        stale = [i for i, item in enumerate(node.input.buffer) if admission is not None and admission.too_old(item.version)]
        if stale:
            self._drop_stale(node, stale[0])
            return
        index = 0 if admission is None else admission.choose([(item.birth, item.version) for item in node.input.buffer])
        if index is None:
            return
        item = self.state.take_for_step(node, index)
        version = self.books.leased(name, item.path)
        self.steps[name].append(item)
        if admission is not None:
            tickets = self.books.tickets[name]
            assert not tickets.too_old(version), f"{item.path} of version {version} is consumed at step {tickets.step}"
            tickets.taken[item.birth] = tickets.waiting.pop(item.birth)

    def _drop_stale(self, node: NodeState, index: int) -> None:
        assert node.input is not None
        item = node.input.buffer[index]
        tickets = self.books.tickets[node.spec.name]
        assert tickets.freshness.late == "drop", f"{item.path} has become too old although the sink waits for it"
        assert tickets.too_old(self.books.items[item.path].version)
        self.books.leased(node.spec.name, item.path)
        self.state.drop(node, self.state.lease(node, index), "stale")
        self.books.dropped(node.spec.name, item.path, "stale")

    def finish_step(self, pick: int) -> None:
        for name, items in self.steps.items():
            node = self.nodes[name]
            collect = node.spec.collect
            assert collect is not None
            if len(items) < collect.items:
                continue
            self.state.commit_step(node, items)
            self.books.trained(name, [item.path for item in items])
            self.steps[name] = []
            for feedback in self.plan.spec.feedback:
                if feedback.source == name:
                    version = self.state.cells[feedback.cell].publish("next")
                    self.books.published[feedback.cell] += 1
                    assert version == self.books.published[feedback.cell]
            if node.meter.steps == collect.steps:
                self.books.done_sinks.add(name)
                self.state.complete(node)

    def give_back_step(self, pick: int) -> None:
        if pick % 8:
            return
        for name, items in self.steps.items():
            self.state.give_back_step(self.nodes[name], items)
            for item in items:
                self.books.given_back(item.path)
                if name in self.books.tickets:
                    tickets = self.books.tickets[name]
                    tickets.waiting[item.birth] = tickets.taken.pop(item.birth)
            self.steps[name] = []

    def load(self, pick: int) -> None:
        """Half the time the load begins, half the time it is over."""
        for name, cell in self.state.cells.items():
            if name in self.loading:
                version, value = self.loading.pop(name)
                self._enforce(name, version, value)
            elif (pending := cell.pending()) is not None:
                self.loading[name] = pending

    def _enforce(self, name: str, version: int, value: object) -> None:
        self.state.cells[name].enforce(version, value)
        for sink in self.books.tickets:
            admission = self.nodes[sink].admission
            if self.books.cell_of[sink] == name and admission is not None:
                admission.enforce(version)
        self.books.loaded(name, version)

    # --- ends ---

    def surplus(self, pick: int) -> None:
        for name, node in self.nodes.items():
            for edge in node.inputs if node.complete and node.spec.kind != "group" else ():
                while edge.buffer:
                    path = edge.buffer[0].path
                    self.books.leased(name, path)
                    self.state.drop(node, edge.take() if node.fan else self.state.lease(node), "surplus", edge=edge)
                    self.books.dropped(name, path, "surplus")

    def end_sources(self, pick: int) -> None:
        self.exhausted = self.exhausted or pick % 256 == 0

    def close(self, pick: int) -> None:
        for node in self.nodes.values():
            over = all(edge.ended for edge in node.inputs) and not node.ready
            if node.spec.kind == "source":
                over = self.exhausted or node.complete
            if node.spec.kind == "repeat" and node.groups is not None:
                over = over and not node.groups.open
            for edge in node.outputs if over else ():
                edge.close()

    # --- pools ---

    def request(self, pick: int) -> None:
        able = [node for node in self.nodes.values() if node.spec.needs]
        if not able or len(self.requests) > 12:
            return
        node = able[pick % len(able)]
        needs = dict(node.spec.needs)
        self.requests.append((self.state.pools.request(needs, node.depth, lambda: None), needs))

    def release(self, pick: int) -> None:
        if self.requests:
            request, _ = self.requests.pop(pick % len(self.requests))
            self.state.pools.release(request)
            if pick % 5 == 0:
                self.state.pools.release(request)

    def resize(self, pick: int) -> None:
        names = sorted(self.state.pools.sizes)
        if names and pick % 4 == 0:
            name = names[pick % len(names)]
            self.state.pools.resize(name, 2 + pick % 3)
            self.owed[name] = max(0, -self.state.pools.free[name])

    def pass_time(self, pick: int) -> None:
        self.now += (pick % 8) / 4
        self.state.pools.look()

    # --- moments ---

    def resume(self, pick: int) -> None:
        """Take the moment, put it into a fresh state, and go on there, as after a kill; or go on as if nothing had been."""
        if pick % 8:
            return
        moment = capture(self.state)
        shown = plain(moment)
        fresh, second = State(self.plan), State(self.plan)
        restore(fresh, moment)
        restore(second, moment)
        assert plain(capture(fresh)) == plain(capture(second)) == shown
        self.moments.append((moment, shown))
        if pick & 0x40000:
            return
        for _, item in self.leases:
            self.books.given_back(item.path)
        for name, items in self.steps.items():
            for item in items:
                self.books.given_back(item.path)
            if name in self.books.tickets:
                tickets = self.books.tickets[name]
                tickets.waiting |= tickets.taken
                tickets.taken.clear()
        self._adopt(fresh)
        for name, cell in fresh.cells.items():  # who goes on starts the cells with the newest values
            if self.books.published[name] > self.books.in_force[name]:
                self._enforce(name, self.books.published[name], "newest")
            else:
                cell.value = "newest"

    # --- comparing ---

    def _fits(self, edge: Channel, items: list[Item]) -> bool:
        """Whether there is room; the edge must say the same."""
        waiting = [i.value for i in edge.buffer]
        cost = 0.0
        if edge.max_cost is not None:
            cost = sum(1 + number_of(v) % 3 for v in [*waiting, *(item.value for item in items)])
        room = len(waiting) + len(items) <= edge.max_items and (edge.max_cost is None or cost <= edge.max_cost)
        assert edge.fits(items) == (room or not waiting), f"{edge.name} has {len(waiting)} and is asked for {len(items)}"
        return edge.fits(items)

    def check(self) -> None:
        """C1, C4, F3, pools: everything that must hold between two transitions."""
        state, books = self.state, self.books
        assert state.faults() == []
        found = seen(state)
        assert len({path for path, *_ in found}) == len(found), "an item is in two places"
        assert {path: rest for path, *rest in found} == {path: list(rest) for path, rest in books.known().items()}
        for name, cell in state.cells.items():
            assert (cell.version, cell.published) == (books.in_force[name], books.published[name])
        for sink, tickets in books.tickets.items():
            admission = self.nodes[sink].admission
            assert admission is not None
            assert admission.capacity == tickets.capacity
            assert admission.held == tickets.out - len(tickets.taken)
            assert tickets.out <= tickets.capacity
            assert admission.may_open == (tickets.out < tickets.capacity and not tickets.enough)
        for name, node in self.nodes.items():
            assert node.complete == books.complete(name), f"{name} is {'' if node.complete else 'not '}complete"
            if node.spec.kind == "group" and node.groups is not None:
                assert (node.groups.opened, node.groups.late) == (books.opened[name], books.late[name])
                assert node.groups.open.keys() == books.tables[name].keys()
            for edge in node.inputs:
                on_it = any(t.edge == edge.name and t.place.endswith(edge.name) for t in books.items.values())
                assert edge.ended == (edge.closed and not on_it)
        self._check_pools()

    def _check_pools(self) -> None:
        pools = self.state.pools
        for name, size in pools.sizes.items():
            held = sum(needs.get(name, 0) for request, needs in self.requests if request.granted)
            assert pools.free[name] + held == size
            self.owed[name] = min(self.owed[name], max(0, -pools.free[name]))
            assert pools.free[name] >= -self.owed[name], f"more of {name} was granted than there is"
        assert pools.waiting == sum(not request.granted for request, _ in self.requests)

    def run(self, seed: int, count: int) -> None:
        """So many random operations, checked after each. Each seed prefers others, so that all come to extremes."""
        rnd = random.Random(seed)
        weights = [rnd.choice((0.3, 1, 1, 3)) for _ in self.operations]
        for operation in rnd.choices(self.operations, weights, k=count):
            getattr(self, operation)(rnd.getrandbits(20))
            self.check()
        for moment, shown in self.moments:
            assert plain(moment) == shown, "a moment changed after it was taken"

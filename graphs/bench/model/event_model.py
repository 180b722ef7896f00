"""A discrete-event model of the rules of a graph, written from the rules and not from the engine, so that it may judge it.

source -> stages -> repeat -> stages -> barrier -> stages -> collecting sink -> cell. One heap of events; after each event every
transition that is possible is made: finished work moves on where there is room, then work starts, the most downstream first.
Nothing here waits, wakes or awaits, which is where an engine goes wrong. Its own cost is nothing: what a run takes longer than
the model with the same times is what the engine adds between the stages.
"""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from graphs.bench.model.spec import Line, Times, Work


@dataclass(eq=False)
class Group:
    """Members under way under one birth number. Without groups, every item is one."""

    birth: int
    path: tuple[int, ...]
    size: int
    version: int | None = None
    good: int = 0
    lost: int = 0
    open: bool = True


@dataclass(eq=False)
class Item:
    """What travels. ``group`` is unset before the repeat."""

    path: tuple[int, ...]
    group: Group | None = None
    member: bool = False
    retry: int = 0


@dataclass(eq=False)
class Attempt:
    """An item at work at a node."""

    node: int
    item: Item
    stopped: bool = False


@dataclass
class Outcome:
    """What a run of the model comes to.

    Attributes:
        seconds: until the last step was finished.
        trained: path of each item in the order of training.
        lags: versions between dispatch and step, for each of them.
        dropped: items or groups that came to nothing, by reason.
        straggler_s: time the sink stood still although something was ready, since something older had to come first.
    """

    seconds: float = 0.0
    trained: list[tuple[int, ...]] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    straggler_s: float = 0.0


class Model:
    """One run of the rules over a line.

    Args:
        line: what is run.
        times: how long everything takes.
    """

    def __init__(self, line: Line, times: Times) -> None:
        self.line, self.times, self.now = line, times, 0.0
        self.kinds, self.nodes = map(list, zip(("source", Work("source", 1, 0)), *line.nodes(), strict=True))
        size = len(self.nodes)
        self.queues: list[list[Item]] = [[] for _ in range(size)]
        self.parked: list[deque[tuple[int | None, list[Item]]]] = [deque() for _ in range(size)]
        self.idle = [node.workers for node in self.nodes]
        self.free = dict(line.pools)
        self.running: list[Attempt] = []
        self.groups: dict[int, Group] = {}
        self.tickets = line.tickets
        self.step = self.taken = self.in_force = 0
        self.loading = False
        self.unreturned: Counter[int] = Counter()
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers, self.births = itertools.count(), itertools.count()
        self.sources = itertools.count()
        self.result = Outcome()

    def run(self) -> Outcome:
        """Run to the last step.

        Raises:
            RuntimeError: nothing can move any more.
        """
        self._settle()
        while self.step < self.line.steps:
            if not self.events:
                raise RuntimeError(f"{self.line.name}: nothing can move at step {self.step}")
            held = self.idle[-1] > 0 and bool(self.queues[-1])
            then, _, act = heapq.heappop(self.events)
            self.result.straggler_s += then - self.now if held else 0.0
            self.now = then
            act()
            self._settle()
        self.result.seconds = self.now
        return self.result

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), act))

    def _settle(self) -> None:
        """Make every transition that is possible: hand on first, then start one, the most downstream first."""
        nodes = range(len(self.nodes))
        while any(self._hand_on(node) for node in nodes[1:]) or any(self._start(node) for node in reversed(nodes)):
            pass

    def _hand_on(self, node: int) -> bool:
        """Move finished work onto the edge before a node while there is room, first come first served."""
        moved, queue, line = False, self.queues[node], self.parked[node]
        while len(queue) < self.nodes[node].capacity:
            if node == 1 and not line:
                line.append((None, [Item((next(self.sources),))]))
            if not line:
                break
            producer, items = line[0]
            while items and len(queue) < self.nodes[node].capacity:
                queue.append(items.pop(0))
            if not items:
                line.popleft()
                if producer is not None:
                    self.idle[producer] += 1
            moved = True
        return moved

    def _start(self, node: int) -> bool:
        queue, kind, stage = self.queues[node], self.kinds[node], self.nodes[node]
        if not queue or not self.idle[node]:
            return False
        if kind == "work":
            if any(self.free[pool] < units for pool, units in stage.needs.items()):
                return False
            self._work(node, queue.pop(0))
        elif kind == "repeat":
            if not self.tickets or self._all_open:
                return False
            self._open(node, queue.pop(0))
        elif kind == "barrier":
            if len(self.parked[node + 1]) >= self.nodes[node + 1].capacity:
                return False  # whole groups wait for room, and as many are held as the edge would hold
            self._gather(node, queue.pop(0))
        else:
            chosen = self._choose(queue)
            if chosen is None:
                return False
            queue.remove(chosen)
            self._train(chosen)
        return True

    @property
    def _all_open(self) -> bool:
        """Whether every group that the run still needs is open, so that no other is wanted."""
        known = self.line.max_lag is not None
        return known and len(self.result.trained) + len(self.groups) >= self.line.steps * self.line.batch

    def _work(self, node: int, item: Item) -> None:
        stage, attempt = self.nodes[node], Attempt(node, item)
        self._occupy(attempt, -1)
        if stage.reads and item.group is not None:
            before = item.group.version
            item.group.version = self.in_force if before is None else min(before, self.in_force)
        self._at(self.times.seconds(stage.name, item.path, item.retry), lambda: self._worked(attempt))

    def _occupy(self, attempt: Attempt, change: int) -> None:
        self.idle[attempt.node] += change
        for pool, units in self.nodes[attempt.node].needs.items():
            self.free[pool] += change * units
        self.running.append(attempt) if change < 0 else self.running.remove(attempt)

    def _worked(self, attempt: Attempt) -> None:
        if attempt.stopped:
            return
        node, item = attempt.node, attempt.item
        self._occupy(attempt, +1)
        if self.times.fails(self.nodes[node].name, item.path, item.retry):
            self._failed(item)
            return
        self.idle[node] -= 1  # the pool is free again, the worker is not before its output has found room
        self.parked[node + 1].append((node, [item]))

    def _failed(self, item: Item) -> None:
        group = item.group
        if group is None:
            self.result.dropped["failed"] += 1
        elif item.member and self.line.missing == "retry" and item.retry < self.line.retries:
            item.retry += 1
            self.queues[self.kinds.index("repeat") + 1].insert(0, item)
        elif item.member and self.line.missing == "shrink":
            group.lost += 1
            self._maybe_close(group)
        else:
            self._drop(group, "failed")

    def _open(self, node: int, item: Item) -> None:
        self.tickets -= 1
        group = Group(next(self.births), item.path, self.line.size)
        self.groups[group.birth] = group
        self.idle[node] -= 1
        self.parked[node + 1].append((node, [Item((*item.path, n), group, True) for n in range(group.size)]))

    def _gather(self, node: int, item: Item) -> None:
        assert item.group is not None
        item.group.good += 1
        self._maybe_close(item.group)

    def _maybe_close(self, group: Group) -> None:
        if group.good + group.lost < group.size:
            return
        if group.lost and group.good < 2:
            self._drop(group, "failed")
            return
        self.parked[self.kinds.index("barrier") + 1].append((None, [Item(group.path, group)]))

    def _drop(self, group: Group, reason: str) -> None:
        """End a group: its ticket goes back, its members stop wherever they are."""
        self.result.dropped[reason] += 1
        self.tickets += 1
        del self.groups[group.birth]
        group.open = False
        for attempt in [attempt for attempt in self.running if attempt.item.group is group]:
            attempt.stopped = True
            self._occupy(attempt, +1)
        for queue in self.queues:
            queue[:] = [item for item in queue if item.group is not group]
        for line in self.parked:
            for _, items in line:
                items[:] = [item for item in items if item.group is not group]
        self._dismiss()

    def _dismiss(self) -> None:
        """Let go the producers that have nothing left to hand on."""
        for node, line in enumerate(self.parked):
            for producer, items in line:
                if not items and producer is not None:
                    self.idle[producer] += 1
            self.parked[node] = deque(entry for entry in line if entry[1])

    def _choose(self, ready: list[Item]) -> Item | None:
        """What the sink may take next; ``None``: it has to wait for something older."""
        lag = self.line.max_lag
        if lag is None:
            return ready[0]
        ordered = sorted(ready, key=lambda item: (item.group.version, item.group.birth))  # type: ignore[union-attr]
        if lag == 0 and self.line.order == "birth":
            return ordered[0] if ordered[0].group.birth == min(self.groups) else None  # type: ignore[union-attr]
        if self.line.late == "drop":
            return ordered[0]
        return next((item for item in ordered if self._fits_without(item.group)), None)

    def _fits_without(self, chosen: Group | None) -> bool:
        """Whether all others can still be trained in time once this one has taken its place in the step."""
        assert self.line.max_lag is not None
        rest = [g.version + self.line.max_lag for g in self.groups.values() if g is not chosen and g.version is not None]
        left = self.line.batch - self.taken - 1
        return all(sum(d <= by for d in rest) <= left + self.line.batch * (by - self.step) for by in set(rest))

    def _train(self, item: Item) -> None:
        self.idle[-1] -= 1
        self.taken += 1
        self.result.trained.append(item.path)
        if item.group is not None:
            self.result.lags.append(self.step - (item.group.version or 0))
            del self.groups[item.group.birth]
            self.unreturned[self.step] += 1
        self._at(self.times.seconds("add", item.path), self._added)

    def _added(self) -> None:
        if self.taken < self.line.batch:
            self.idle[-1] += 1
        else:
            self._at(self.times.seconds("finish", (self.step,)), self._finished)

    def _finished(self) -> None:
        self.idle[-1] += 1
        self.step, self.taken = self.step + 1, 0
        if self.line.max_lag is None:
            return
        if not self.loading:
            self._load()
        for group in list(self.groups.values()):
            if group.version is not None and group.version + self.line.max_lag < self.step:
                self._drop(group, "late")

    def _load(self) -> None:
        """Bring the newest version into force, which takes time; then the tickets of the steps before it go back."""
        self.loading, version = True, self.step
        self._at(self.times.seconds("load", (version,)), lambda: self._loaded(version))

    def _loaded(self, version: int) -> None:
        self.loading, self.in_force = False, version
        for step in [step for step in self.unreturned if step < version]:
            self.tickets += self.unreturned.pop(step)
        if self.step > version:
            self._load()

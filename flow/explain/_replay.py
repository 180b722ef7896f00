"""The same work once more under other limits, on paper: what it would bring to widen one of them.

A piece begins when what it takes is there, a worker of its node is free, units of its pools are, a group has a ticket, and the
sink may take it. Edges have no bound here, and the sink takes the oldest of what may be taken. Both hold with a change and
without, and only the two are compared.
"""

import heapq
from bisect import insort
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ._model import Model, Task
from ._pieces import pools_of

_READY, _STOPPED, _ENDED, _FINISHED, _LOADED = range(5)


@dataclass(frozen=True)
class Change:
    """What is otherwise.

    Attributes:
        times: factor of the time of the work of a node, or of the loads of a cell.
        workers: factor of the number of workers of a node.
        pools: factor of the units of a pool.
        steps_ahead: further steps whose groups may be under way.
        compiling: factor of the time in which something is compiled.
    """

    times: Mapping[str, float] = field(default_factory=dict[str, float])
    workers: Mapping[str, float] = field(default_factory=dict[str, float])
    pools: Mapping[str, float] = field(default_factory=dict[str, float])
    steps_ahead: int = 0
    compiling: float = 1.0


def seconds_a_step(model: Model, change: Change | None = None) -> float:
    """Mean time of a step, or of what the sink takes where it takes one thing at a time.

    Args:
        model: what there is to do.
        change: what is otherwise; ``None`` for nothing.
    """
    replay = _Replay(model, change or Change())
    replay.run()
    return replay.ended / 1e9 / max(1, replay.steps)


def gain(model: Model, base: float, change: Change) -> float:
    """Throughput that a change brings: 0.5 is half as much again.

    Args:
        model: what there is to do.
        base: ``seconds_a_step`` without a change.
        change: what is otherwise.
    """
    seconds = seconds_a_step(model, change)
    if seconds <= 0 or base <= 0:
        return 0.0
    return max(0.0, base / seconds - 1)


class _Replay:
    """One time through.

    Attributes:
        steps: steps that came to their end.
        ended: when the last of them did, ns.
    """

    def __init__(self, model: Model, change: Change) -> None:
        self._model, self._change = model, change
        self._waiting_for = [task.num_sources for task in model.tasks]
        self._queues: dict[str, deque[int]] = {node: deque() for node in model.nodes}
        self._lanes = {node: max(1, round(count * change.workers.get(node, 1.0))) for node, count in model.lanes.items()}
        self._units = {pool: max(1, round(units * change.pools.get(pool, 1.0))) for pool, units in model.units.items()}
        tickets = None if model.tickets is None else model.tickets + change.steps_ahead * model.step_size
        self._free = None if tickets is None else tickets - len(model.open_births)
        self._lag = 0 if tickets is None else max(0, tickets // model.step_size - 1)
        self._ordered = model.ordered and not change.steps_ahead
        self._open: dict[int | None, int | None] = dict.fromkeys(model.open_births)  # version of each group, by birth
        self._depths = {node: depth for depth, node in enumerate(model.nodes)}
        self._places: dict[int, int] = {}  # of the stop that comes next, by task
        self._asking: list[tuple[int, int, int]] = []  # tasks that wait for permits, the last node first, then in order
        self._may_serve = False
        self._events: list[tuple[int, int, int, int]] = []  # time, order, what, task
        self._now = self._order = self._taken = self._in_force = self._published = self._loads = 0
        self._loading: int | None = None  # step whose version is being loaded
        self._touched = set(model.nodes)
        self.steps = self.ended = 0

    def run(self) -> None:
        """Go through it."""
        for number, waits in enumerate(self._waiting_for):
            if not waits:
                self._at(self._model.tasks[number].delay_ns, _READY, number)
        events = self._events
        self._begin_all()
        while events:
            self._now = events[0][0]
            while events and events[0][0] == self._now:
                _, _, what, number = heapq.heappop(events)
                self._happens(what, number)
            self._begin_all()

    def _at(self, ns: int, what: int, number: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._events, (self._now + ns, self._order, what, number))

    def _happens(self, what: int, number: int) -> None:
        if what == _READY:
            node = self._model.tasks[number].node
            self._queues[node].append(number)
            self._touched.add(node)
        elif what == _STOPPED:
            self._stops(number)
        elif what == _ENDED:
            self._ends(self._model.tasks[number])
        elif what == _FINISHED:
            self._lanes[self._model.sink] += 1
            self.steps, self.ended, self._taken = self.steps + 1, self._now, 0
            self._published += 1
            self._load()
            self._touched.add(self._model.sink)
        else:
            self._is_loaded()

    def _stops(self, number: int) -> None:
        """A task gives units of pools back, or asks for some."""
        task = self._model.tasks[number]
        stop = task.stops[self._places[number]]
        self._get_back(stop.gives)
        if stop.takes:
            self._order += 1
            insort(self._asking, (-self._depths[task.node], self._order, number))
            self._may_serve = True
        else:
            self._goes_on(number, self._places[number] + 1)

    def _goes_on(self, number: int, place: int) -> None:
        """To the stop of this place, or to its end."""
        task = self._model.tasks[number]
        if place < len(task.stops):
            self._places[number] = place
            self._at(int(task.stops[place].own_ns * self._change.times.get(task.node, 1.0)), _STOPPED, number)
        else:
            self._at(self._lasts(task.node, task.own_ns, task.compile_ns, task.waits_ns), _ENDED, number)

    def _serve(self) -> None:
        """Grant permits, by the engine's rule: a request that has to wait holds others off the pools that it lacks."""
        self._may_serve = False
        lacking: set[str] = set()
        for asking in tuple(self._asking):
            number = asking[2]
            takes = self._model.tasks[number].stops[self._places[number]].takes
            short = [pool for pool, units in takes.items() if self._units[pool] < units]
            if short or not lacking.isdisjoint(takes):
                lacking.update(short)
                continue
            self._asking.remove(asking)
            for pool, units in takes.items():
                self._units[pool] -= units
            self._goes_on(number, self._places[number] + 1)

    def _get_back(self, units: Mapping[str, int]) -> None:
        for pool, count in units.items():
            self._units[pool] += count
            self._touched.update(self._queues)
            self._may_serve = True

    def _ends(self, task: Task) -> None:
        self._lanes[task.node] += 1
        self._touched.add(task.node)
        self._get_back(dict.fromkeys(task.pools, 1))
        if task.returns:
            self._give_back(1)
            self._open.pop(task.birth, None)
        for follower in task.followers:
            self._waiting_for[follower] -= 1
            if not self._waiting_for[follower]:
                self._at(self._model.tasks[follower].delay_ns, _READY, follower)
        if task.node == self._model.sink and not self._model.finishes:
            self.steps, self.ended = self.steps + 1, self._now

    def _give_back(self, tickets: int) -> None:
        if self._free is not None:
            self._free += tickets
            self._touched.update(self._queues)

    def _load(self) -> None:
        if self._loading is None and self._published > self._in_force:
            loads = self._model.loads
            ns = loads[min(self._loads, len(loads) - 1)] if loads else 0
            self._loads, self._loading = self._loads + 1, self._published
            self._at(int(ns * self._change.times.get(self._model.cell, 1.0)), _LOADED)

    def _is_loaded(self) -> None:
        assert self._loading is not None, "it was begun"
        self._give_back((self._loading - self._in_force) * self._model.step_size)
        self._in_force, self._loading = self._loading, None
        self._load()

    def _begin_all(self) -> None:
        """Begin all that can be begun, the last node first; who is at work already goes before that."""
        if self._may_serve:
            self._serve()
        while self._touched:
            touched, self._touched = self._touched, set[str]()
            for node in reversed(self._model.nodes):
                if node in touched:
                    while self._lanes.get(node, 0) > 0 and self._begin(node):
                        pass

    def _begin(self, node: str) -> bool:
        """Begin one thing at a node; whether there was one."""
        queue, sink = self._queues[node], node == self._model.sink
        if sink and self._model.finishes and self._taken == self._model.step_size:
            if self.steps >= len(self._model.finishes):
                return False
            self._lanes[node] -= 1
            self._at(self._lasts(node, *self._model.finishes[self.steps]), _FINISHED)
            return True
        place = self._choose(queue) if sink and self._model.finishes else 0 if queue else None
        if place is None:
            return False
        number = queue[place]
        task = self._model.tasks[number]
        if (task.opens and self._free is not None and self._free < 1) or any(self._units[pool] < 1 for pool in task.pools):
            return False
        del queue[place]
        self._takes(task, sink)
        self._lanes[node] -= 1
        self._goes_on(number, 0)
        return True

    def _takes(self, task: Task, sink: bool) -> None:
        """Note what a task that begins takes away."""
        for pool in task.pools:
            self._units[pool] -= 1
        if task.opens:
            self._open[task.birth] = None
            if self._free is not None:
                self._free -= 1
        elif task.reads and task.birth in self._open:
            known = self._open[task.birth]
            self._open[task.birth] = self._in_force if known is None else min(known, self._in_force)
            self._touched.add(self._model.sink)  # what it may take depends on how old the others are
        if sink:
            self._taken += 1
            self._open.pop(task.birth, None)

    def _lasts(self, node: str, own_ns: int, compile_ns: int, waits_ns: Mapping[str, int]) -> int:
        wider = self._change.pools
        waits = sum(ns for what, ns in waits_ns.items() if wider.keys().isdisjoint(pools_of(what)))
        return int(own_ns * self._change.times.get(node, 1.0) + waits + compile_ns * self._change.compiling)

    def _choose(self, queue: "deque[int]") -> int | None:
        """Place of what the sink takes next; ``None`` where it has to wait. The engine's rule, see ``Admission.choose``."""
        if not queue or self._free is None:
            return 0 if queue else None
        births = [self._model.tasks[number].birth for number in queue]
        if self._ordered:
            first = min((birth for birth in self._open if birth is not None), default=None)
            return births.index(first) if first in births else None
        margins = {birth: self._margin(version) for birth, version in self._open.items()}
        latest = self._latest_margin(margins)
        may = [place for place, birth in enumerate(births) if margins.get(birth, 0) <= latest]
        return min(may, key=lambda place: (margins.get(births[place], 0), births[place] or 0), default=None)

    def _margin(self, version: int | None) -> int:
        known = self._in_force if version is None else version
        return max(0, min(known + self._lag - self.steps, self._lag))

    def _latest_margin(self, margins: Mapping[int | None, int]) -> int:
        due = Counter(margins.values())
        needed, free, latest = 0, self._model.step_size - self._taken - 1, self._lag
        for later in range(self._lag + 1):
            needed += due[later]
            short = needed - (free + later * self._model.step_size)
            if short > 1:
                return -1
            if short == 1:
                latest = min(latest, later)
        return latest

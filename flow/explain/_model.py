"""An execution as work to be done once more: what took how long, out of what, and what was bounded by what.

Who worked on what is taken from the trace; when, is left to ``_replay``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ._links import Links
from ._path import Paths, overlap
from ._pieces import Execution, Piece, pools_of


class Stop(NamedTuple):
    """In the middle of a task units of pools are taken, for which it may have to wait, or given back."""

    own_ns: int
    """The task's own time since the stop before."""
    takes: Mapping[str, int]
    gives: Mapping[str, int]


@dataclass(eq=False, slots=True)
class Task:
    """A piece of work, to be done again.

    Attributes:
        node: whose.
        stops: where it takes permits and gives them back, in order.
        own_ns: time it takes behind the last of these, less what follows.
        compile_ns: time in which something was compiled.
        waits_ns: time that it waited inside for what it holds nothing of, as the next start of a rate, by name.
        pools: pools of which it holds a unit from its beginning to its end.
        delay_ns: time between being there and being begun that nothing explains.
        num_sources: tasks that have to end before it is there.
        followers: numbers of the tasks that take what it makes.
        birth: of its group; ``None`` outside a group.
        opens: whether it opens a group, which takes a ticket.
        returns: whether its group ends with it, which gives the ticket back.
        reads: whether its group is as old as the version in force when it begins.
    """

    node: str
    stops: Sequence[Stop]
    own_ns: int
    compile_ns: int
    waits_ns: Mapping[str, int]
    pools: tuple[str, ...]
    delay_ns: int
    num_sources: int
    followers: list[int]
    birth: int | None
    opens: bool
    returns: bool
    reads: bool


class Model:
    """What there is to do in a part of an execution, and the limits it was done under.

    Args:
        execution: what was done.
        links: of it.
        paths: of it.
        pieces: the part: those that are done again, in order.

    Attributes:
        nodes: names, from the sources on.
        sink: name of the node whose steps count.
        tasks: what is to be done, but for the ends of steps.
        finishes: times of the ends of steps, ns; empty where the sink takes one thing at a time.
        loads: times of the loads of the cell, ns.
        cell: its name; empty where nothing is loaded.
        step_size: things a step takes.
        lanes: workers of each node.
        units: units of each pool, as far as they were ever held at once.
        tickets: groups that may be under way; ``None`` where nobody waited for a ticket.
        open_births: births that are under way at the beginning.
        ordered: whether the sink took groups in the order of birth only.
    """

    def __init__(self, execution: Execution, links: Links, paths: Paths, pieces: Sequence[Piece]) -> None:
        assert links.sink is not None, "a model is made of work"
        self.nodes, self.sink, self.lanes = execution.nodes, links.sink, Counter(execution.lanes)
        ends = [piece for piece in pieces if piece.node == self.sink and piece.call == "finish"]
        # Of a sink that collects, what it does beside its steps, such as commits, is not there to be waited for.
        work = [piece for piece in pieces if not (ends and piece.node == self.sink and piece.call != "add")]
        adds = [piece for piece in work if piece.node == self.sink]
        begin = pieces[0].start
        loads = [load for load in execution.loads if load.start >= begin]
        self.cell = loads[0].node if loads else ""
        self.loads = [load.end - load.start for load in loads]
        self.finishes = [_times(paths, end) for end in ends]
        self.step_size = max(1, round(len(adds) / len(ends))) if ends else 1
        holders = _holders(execution)
        self.units = _units(execution, pieces, holders)
        self.tasks = _tasks(work, paths, holders, self.sink)
        opened = {task.birth for task in self.tasks if task.opens}
        downstream = _behind_openers(execution.nodes, self.tasks)
        inside = [piece for piece in work if piece.node in downstream and piece.birth is not None]
        self.open_births = {piece.birth for piece in inside if piece.birth not in opened} if opened else set[int | None]()
        trained = {piece.birth for piece in adds}
        last = {piece.birth: number for number, piece in enumerate(work) if piece.node in downstream}
        for birth in (opened | self.open_births) - trained:
            if birth in last:
                self.tasks[last[birth]].returns = True
        self.tickets = None
        if opened:
            self.tickets = max(self.step_size, self._most_out(work, ends, loads))
        births = [piece.birth or 0 for piece in adds]
        self.ordered = self.tickets is not None and self.tickets <= self.step_size and births == sorted(births)

    def _most_out(self, work: Sequence[Piece], ends: Sequence[Piece], loads: Sequence[Piece]) -> int:
        """Most groups that were ever open, or trained and not in force."""
        events = [(p.start, 1) for p, task in zip(work, self.tasks, strict=True) if task.opens]
        events += [(p.room, -1) for p, task in zip(work, self.tasks, strict=True) if task.returns]
        done = 0
        for load in loads:
            while done < len(ends) and ends[done].start <= load.start:
                events.append((load.end, -self.step_size))
                done += 1
        out = most = len(self.open_births)
        for _, change in sorted(events):
            out += change
            most = max(most, out)
        return most


def _tasks(work: Sequence[Piece], paths: Paths, holders: Mapping[str, tuple[str, ...]], sink: str) -> list[Task]:
    number = {piece: index for index, piece in enumerate(work)}
    readers = {piece.node for piece in work if "version" in piece.args}
    openers = {piece.node for piece in work if any(wait.kind == "ticket" for wait in piece.waits)}
    opened: set[int] = set()
    tasks: list[Task] = []
    for index, piece in enumerate(work):
        sources = [number[source] for source in piece.sources if source in number]
        birth = piece.birth
        opens = piece.node in openers and birth is not None and birth not in opened
        if opens and birth is not None:
            opened.add(birth)
        own, compiled, waits = _times(paths, piece)
        stops = _stops(piece, own)
        if stops:
            taken = {hold.pool for hold in piece.holds}
            own -= sum(stop.own_ns for stop in stops)
            waits = {what: ns for what, ns in waits.items() if taken.isdisjoint(pools_of(what))}
        delay = 0 if piece.node == sink else _delay(paths, piece)
        pools = holders.get(piece.node, ())
        reads = piece.node in readers
        tasks.append(Task(piece.node, stops, own, compiled, waits, pools, delay, len(sources), [], birth, opens, False, reads))
        for source in sources:
            tasks[source].followers.append(index)
    return tasks


def _times(paths: Paths, piece: Piece) -> tuple[int, int, Mapping[str, int]]:
    """Of a piece: its own time, that of compiling, and of waits for permits inside."""
    compiled, waits = 0, Counter[str]()
    for kind, name, ns in paths.others(piece, piece.start, piece.end):
        if kind == "compile":
            compiled = ns
        elif kind == "pool":
            waits[name] += ns
    return max(0, piece.end - piece.start - compiled - waits.total()), compiled, waits


def _delay(paths: Paths, piece: Piece) -> int:
    cause, ready, (kind, _) = paths.enabled(piece)
    return max(0, piece.start - ready) if cause is not None and kind == "hand-over" else 0


def _holders(execution: Execution) -> dict[str, tuple[str, ...]]:
    """Pools of which each node holds units while it works, as far as it ever had to wait for them."""
    found: dict[str, dict[str, None]] = {}
    for piece in execution.pieces:
        for wait in piece.waits:
            if wait.kind == "pool":
                found.setdefault(piece.node, {}).update(dict.fromkeys(pools_of(wait.what)))
    return {node: tuple(pools) for node, pools in found.items()}


def _stops(piece: Piece, own_ns: int) -> Sequence[Stop]:
    """Where a piece took and gave back permits, by its own time, of which there is so much."""
    events: dict[tuple[int, int], Counter[str]] = {}
    for hold in piece.holds:
        events.setdefault((hold.start, 1), Counter())[hold.pool] += hold.units
        events.setdefault((hold.end, 0), Counter())[hold.pool] += hold.units
    waits = [(wait.start, wait.end) for wait in piece.pools]
    stops: list[Stop] = []
    before = 0
    for (at, taken), pools in sorted(events.items()):
        done = max(before, min(own_ns, at - piece.start - overlap(waits, piece.start, at)))
        stops.append(Stop(done - before, pools if taken else {}, {} if taken else pools))
        before = done
    return stops


def _units(execution: Execution, pieces: Sequence[Piece], holders: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Units of each pool that is waited for or taken inside: as many as were ever held at once, where no counter tells."""
    events: dict[str, list[tuple[int, int]]] = {pool: [] for pools in holders.values() for pool in pools}
    most = Counter[str]()
    inside: set[str] = set()
    for piece in pieces:
        for pool in holders.get(piece.node, ()):
            events[pool] += [(piece.start, 1), (piece.end, -1)]
        for hold in piece.holds:
            events.setdefault(hold.pool, []).extend([(hold.start, hold.units), (hold.end, -hold.units)])
            inside.add(hold.pool)
    for pool, changes in events.items():
        units = 0
        for _, change in sorted(changes):
            units += change
            most[pool] = max(most[pool], units, 1)
    there = execution.pools()
    return {pool: max(most[pool], round(there[pool][0])) if pool in inside and pool in there else most[pool] for pool in events}


def _behind_openers(nodes: Sequence[str], tasks: Sequence[Task]) -> set[str]:
    first = min((nodes.index(node) for node in {task.node for task in tasks if task.opens}), default=len(nodes))
    return set(nodes[first + 1 :])

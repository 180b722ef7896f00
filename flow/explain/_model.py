"""An execution as work to be done once more: what took how long, out of what, and what was bounded by what.

Who worked on what is taken from the trace; when, is left to ``_replay``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ._links import Links
from ._path import Paths
from ._pieces import Execution, Piece, pools_of


@dataclass(eq=False, slots=True)
class Task:
    """A piece of work, to be done again.

    Attributes:
        node: whose.
        own_ns: time it takes, less what follows.
        compile_ns: time in which something was compiled.
        waits_ns: time that it waited for permits inside, by pool.
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
        inside: share of each node in the work of all that take permits of a pool in the middle of it, by pool.
        held: share of the units of each of these that was held.
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
        self.units = {pool: _most_at_once(p for p in pieces if pool in holders.get(p.node, ())) for pool in _pools(holders)}
        self.tasks = _tasks(work, paths, holders, self.sink)
        self.inside = _inside(self.tasks)
        self.held = {pool: share for pool, share in execution.held().items() if pool in self.inside}
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
        delay = 0 if piece.node == sink else _delay(paths, piece)
        pools = holders.get(piece.node, ())
        reads = piece.node in readers
        tasks.append(Task(piece.node, own, compiled, waits, pools, delay, len(sources), [], birth, opens, False, reads))
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


def _inside(tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
    users: dict[str, set[str]] = {}
    for task in tasks:
        for pool in task.waits_ns:
            users.setdefault(pool, set()).add(task.node)
    spent = Counter[str]()
    for task in tasks:
        spent[task.node] += task.own_ns
    totals = {pool: max(1, sum(spent[node] for node in nodes)) for pool, nodes in users.items()}
    return {pool: {node: spent[node] / totals[pool] for node in nodes} for pool, nodes in users.items()}


def _pools(holders: Mapping[str, tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(pool for pools in holders.values() for pool in pools))


def _most_at_once(pieces: Iterable[Piece]) -> int:
    events: list[tuple[int, int]] = []
    for piece in pieces:
        events += [(piece.start, 1), (piece.end, -1)]
    held = most = 0
    for _, change in sorted(events):
        held += change
        most = max(most, held)
    return max(1, most)


def _behind_openers(nodes: Sequence[str], tasks: Sequence[Task]) -> set[str]:
    first = min((nodes.index(node) for node in {task.node for task in tasks if task.opens}), default=len(nodes))
    return set(nodes[first + 1 :])

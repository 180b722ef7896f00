"""What must be true of a running graph, kept apart from the engine: where each item is, tables of groups, tickets, versions.

Written from the rules and told of each transition by the machine. It shares no code with the core, only the declared graph.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from flow import Freshness, Plan, Retry, Shrink

Path = tuple[int, ...]


@dataclass
class Travel:
    """One item that has not come to its end.

    Attributes:
        place: where it is, in words.
        edge: the edge it is on, or was leased from; empty for none.
        position: its number among all that were put there.
        birth: number of its group, behind a repeat.
        member: index in its group.
    """

    place: str
    edge: str = ""
    position: int = 0
    birth: int = 0
    member: int | None = None
    version: int | None = None
    failed: str | None = None
    retry: int = 0
    attempt: int = 0
    retries: int = 0


@dataclass
class Table:
    """An open group."""

    origin: Path
    size: int
    good: dict[int, Path] = field(default_factory=dict)
    bad: dict[int, Path | None] = field(default_factory=dict)
    again: Counter[int] = field(default_factory=Counter)
    versions: dict[int, int] = field(default_factory=dict)

    @property
    def version(self) -> int | None:
        return min(self.versions.values(), default=None)


@dataclass
class Tickets:
    """What one feedback edge with freshness has out."""

    freshness: Freshness
    per_step: int
    target: int | None
    waiting: dict[int, int | None] = field(default_factory=dict)
    taken: dict[int, int | None] = field(default_factory=dict)
    trained: dict[int, int] = field(default_factory=dict)
    done: int = 0
    step: int = 0

    @property
    def capacity(self) -> int:
        depth = self.freshness.depth if self.freshness.depth is not None else self.freshness.max_lag
        return (depth + 1) * self.per_step

    @property
    def out(self) -> int:
        return len(self.waiting) + len(self.taken) + len(self.trained)

    @property
    def enough(self) -> bool:
        return self.target is not None and self.done + len(self.taken) + len(self.waiting) >= self.target

    def too_old(self, version: int | None) -> bool:
        return version is not None and self.step - version > self.freshness.max_lag


class Books:
    """The independent count of one graph."""

    def __init__(self, plan: Plan) -> None:
        spec = self.spec = plan.spec
        self.items: dict[Path, Travel] = {}
        self.ended: Counter[str] = Counter()
        self.puts: Counter[str] = Counter()
        self.tables: dict[str, dict[int, Table]] = {n: {} for n, node in spec.nodes.items() if node.kind == "group"}
        self.opened: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.done_sinks: set[str] = set()
        self.in_force: dict[str, int] = dict.fromkeys(spec.cells, 0)
        self.published: dict[str, int] = dict.fromkeys(spec.cells, 0)
        self.pair = {inside: group for group in self.tables for inside in spec.path(group)}
        self.tickets: dict[str, Tickets] = {}
        self.line: dict[str, str] = {}
        self.cell_of: dict[str, str] = {}
        for feedback in spec.feedback:
            collect = spec.nodes[feedback.source].collect
            if feedback.freshness is not None and collect is not None:
                target = None if collect.steps is None else collect.steps * collect.items
                self.tickets[feedback.source] = Tickets(feedback.freshness, collect.items, target)
                self.cell_of[feedback.source] = feedback.cell
                self.line |= dict.fromkeys(spec.path(feedback.source), feedback.source)

    # --- single items ---

    def put(self, path: Path, edge: str, travel: Travel) -> None:
        assert path not in self.items or self.items[path] is travel, f"{path} is in two places"
        travel.place, travel.edge, travel.position = f"waits on {edge}", edge, self.puts[edge]
        travel.attempt = travel.retries = 0
        self.puts[edge] += 1
        self.items[path] = travel

    def end(self, path: Path, reason: str) -> None:
        del self.items[path]
        self.ended[reason] += 1

    def leased(self, node: str, path: Path) -> int | None:
        """An attempt begins; gives the version it is stamped with."""
        travel, reads = self.items[path], self.spec.nodes[node].reads
        travel.place = f"leased from {travel.edge}"
        if reads is None:
            return travel.version
        seen = self.in_force[reads]
        if node in self.line and self.cell_of[self.line[node]] != reads:
            return travel.version
        stamp = seen if travel.version is None else min(seen, travel.version)
        table = self.table_of(node, travel)
        if table is not None and travel.member is not None:
            table.versions[travel.member] = stamp
        return stamp

    def given_back(self, path: Path) -> None:
        travel = self.items[path]
        travel.place = f"waits on {travel.edge}"
        travel.attempt += 1

    def dropped(self, node: str, path: Path, reason: str) -> None:
        travel = self.items[path]
        self.end(path, reason)
        if travel.member is not None and node in self.pair:
            self.report(self.pair[node], path, travel, failed=True, kept=False)
        elif node in self.line and self.spec.nodes[node].kind != "repeat":
            self.tickets[self.line[node]].waiting.pop(travel.birth, None)

    # --- groups ---

    def table_of(self, node: str, travel: Travel) -> Table | None:
        return self.tables[self.pair[node]].get(travel.birth) if node in self.pair else None

    def open(self, node: str, origin: Path, size: int) -> list[tuple[Path, Travel]]:
        group, travel = self.pair[node], self.items[origin]
        birth = self.opened[group]
        self.opened[group] += 1
        assert birth not in self.tables[group]
        self.tables[group][birth] = Table(origin, size)
        travel.place, travel.edge = f"open {birth} at {group}", ""
        if node in self.line:
            self.tickets[self.line[node]].waiting[birth] = None
        return [((*origin, index), Travel("", birth=birth, member=index, version=travel.version)) for index in range(size)]

    def report(self, group: str, path: Path, travel: Travel, *, failed: bool, kept: bool) -> None:
        """A member is at its end: good or failed, ``kept`` where the barrier has a value for it."""
        table, missing = self.tables[group].get(travel.birth), self.spec.nodes[group].missing
        if table is None:
            self.late[group] += 1
            if kept:
                self.end(path, "late")
            return
        member = travel.member
        assert member is not None
        assert member not in table.good
        assert member not in table.bad
        if failed and isinstance(missing, Retry) and table.again[member] < missing.times:
            table.again[member] += 1
            version = self.items[table.origin].version
            again = Travel(f"again at {group}", birth=travel.birth, member=member, version=version, retry=travel.retry + 1)
            self.items.pop(path, None)  # behind a broadcast it is called otherwise than when it is made
            self.items[(*table.origin, member)] = again
            return
        if kept:
            travel.place = f"held {travel.birth} at {group}"
        if not failed:
            table.good[member] = path
        else:
            table.bad[member] = path if kept else None
            if missing == "drop" or (isinstance(missing, Retry) and missing.then == "drop"):
                self.give_up(group, travel.birth, "group dropped")
                return
        if len(table.good) + len(table.bad) == table.size:
            self._close(group, travel.birth, table, missing.min_members if isinstance(missing, Shrink) else 1)

    def give_up(self, group: str, birth: int, reason: str) -> None:
        table = self.tables[group].pop(birth)
        self._clear(group, birth, table)
        self.end(table.origin, reason)
        if group in self.line:
            self.tickets[self.line[group]].waiting.pop(birth, None)

    def _close(self, group: str, birth: int, table: Table, fewest: int) -> None:
        if len(table.good) < fewest:
            self.give_up(group, birth, "group dropped")
            return
        del self.tables[group][birth]
        parts = [p for p in (*table.good.values(), *table.bad.values()) if p is not None]
        versions = [v for p in parts if (v := self.items[p].version) is not None]
        self._clear(group, birth, table)
        version = min(versions, default=None)
        self.items[table.origin] = Travel(f"ready at {group}", birth=birth, version=version)
        if group in self.line:
            self.tickets[self.line[group]].waiting[birth] = version

    def _clear(self, group: str, birth: int, table: Table) -> None:
        for path in (*table.good.values(), *table.bad.values()):
            if path is not None:
                self.end(path, "gathered")
        for path, travel in list(self.items.items()):
            if travel.place == f"again at {group}" and travel.birth == birth:
                self.end(path, "not tried again")

    # --- steps ---

    def trained(self, sink: str, paths: list[Path]) -> None:
        for path in paths:
            self.end(path, "trained")
        self.steps[sink] += 1
        tickets = self.tickets.get(sink)
        if tickets is None:
            return
        tickets.step += 1
        tickets.done += len(paths)
        tickets.trained |= dict.fromkeys(tickets.taken, tickets.step)
        tickets.taken.clear()
        if tickets.freshness.late == "drop":
            self._give_up_stale(sink, tickets)

    def _give_up_stale(self, sink: str, tickets: Tickets) -> None:
        for group, tables in self.tables.items():
            for birth in [b for b, table in tables.items() if self.line.get(group) == sink and tickets.too_old(table.version)]:
                self.give_up(group, birth, "stale")
        behind = {e.name for n in self.line if n not in self.pair and self.line[n] == sink for e in self.spec.inputs(n)}
        for path, travel in list(self.items.items()):
            if travel.place == f"waits on {travel.edge}" and travel.edge in behind and tickets.too_old(travel.version):
                self.end(path, "stale")
                tickets.waiting.pop(travel.birth, None)

    def loaded(self, cell: str, version: int) -> None:
        assert version > self.in_force[cell]
        self.in_force[cell] = version
        for sink, tickets in self.tickets.items():
            if self.cell_of[sink] == cell:
                tickets.trained = {birth: step for birth, step in tickets.trained.items() if step > version}

    # --- ends ---

    def sinks_reached(self, node: str) -> set[str]:
        if self.spec.nodes[node].kind == "sink":
            return {node}
        return {sink for edge in self.spec.outputs(node) for sink in self.sinks_reached(edge.target)}

    def complete(self, node: str) -> bool:
        """Whether every sink that counts steps has them, of those the node leads to, or of all."""
        collects = {name: spec.collect for name, spec in self.spec.nodes.items()}
        counting = {name for name, collect in collects.items() if collect is not None and collect.steps is not None}
        reached = self.sinks_reached(node) & counting
        return bool(self.done_sinks) and (counting <= self.done_sinks or (bool(reached) and reached <= self.done_sinks))

    def known(self) -> dict[Path, tuple[Any, ...]]:
        """Every item that has not ended, with its place and what is to be seen of it there."""
        return {path: self._seen(travel) for path, travel in self.items.items()}

    def _seen(self, travel: Travel) -> tuple[Any, ...]:
        if travel.place.startswith("waits on"):
            return (
                travel.place, travel.position, travel.version, travel.failed, travel.retry, travel.attempt, travel.retries
            )  # fmt: skip
        return (travel.place,)

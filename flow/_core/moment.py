"""The moment of a graph as data: taken in one synchronous step, put into a fresh state, and the run goes on from there.

An attempt under way is in it as its input, back in its place and one attempt older; a step under way as the items it had taken.
Values are references. What is not here: what stages keep themselves, values of cells (who restores them starts the cells with
them), and the time, so that a rate begins anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from .budget import Spent
from .channel import Channel
from .freshness import Tickets
from .groups import Groups, OpenGroup
from .item import Item
from .meter import Meter
from .node import NodeState
from .state import State

_POSITION = attrgetter("position")


@dataclass(frozen=True)
class EdgeMoment:
    """One edge.

    Attributes:
        items: what waits or was out on a lease, oldest first.
        put_count: items ever put.
        high_water: most that ever waited.
        closed: whether no more will be put.
    """

    items: tuple[Item, ...]
    put_count: int
    high_water: int
    closed: bool


@dataclass(frozen=True)
class GroupsMoment:
    """The groups of one pair: open ones by birth, how many were ever opened, late members, members to be issued again."""

    open: dict[int, OpenGroup]
    opened: int
    late: int
    retries: tuple[Item, ...]


@dataclass(frozen=True)
class Moment:
    """A whole graph.

    Attributes:
        edges: by name.
        meters: counts by node.
        complete: nodes whose line has all it was asked for.
        ready: closed groups that wait for room, by node.
        groups: by the name of the group node.
        tickets: by the name of the sink.
        cells: (version in force, newest published, skipped) by name.
        turns: what fans remember of whose turn it is, by node.
        sizes: of pools that the engine resizes.
        given: newest version that each source of versions gave.
        budgets: what nodes have spent of theirs.
        in_hand: by source, the item that was drawn and waits for room.
    """

    edges: dict[str, EdgeMoment]
    meters: dict[str, Meter]
    complete: frozenset[str]
    ready: dict[str, tuple[Item, ...]]
    groups: dict[str, GroupsMoment]
    tickets: dict[str, Tickets]
    cells: dict[str, tuple[int, int, int]]
    turns: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    given: dict[str, int] = field(default_factory=dict[str, int])
    budgets: dict[str, Spent] = field(default_factory=dict[str, Spent])
    in_hand: dict[str, Item] = field(default_factory=dict[str, Item])


def capture(state: State, in_hand: Mapping[str, Item] | None = None) -> Moment:
    """Take the moment of a graph. The graph may go on at once.

    Args:
        state: of the graph.
        in_hand: by source, what its workers have drawn and not put anywhere; ``None`` for nothing.
    """
    nodes = state.nodes
    return Moment(
        edges={edge.name: _edge(edge) for node in nodes.values() for edge in node.inputs},
        meters={name: _meter(node) for name, node in nodes.items()},
        complete=frozenset(name for name, node in nodes.items() if node.complete),
        ready={name: tuple(map(_copy, node.ready)) for name, node in nodes.items() if node.ready},
        groups={name: _groups(node.groups) for name, node in nodes.items() if node.spec.kind == "group" and node.groups},
        tickets={name: _tickets(node) for name, node in nodes.items() if node.spec.kind == "sink" and node.admission},
        cells={name: (cell.version, cell.published, cell.skipped) for name, cell in state.cells.items()},
        turns={name: node.fan.turn for name, node in nodes.items() if node.fan is not None},
        sizes={pool: state.pools.sizes[pool] for pool in state.pools.adaptive},
        given={name: node.given for name, node in nodes.items() if node.spec.kind == "versions"},
        budgets={name: node.budget.moment() for name, node in nodes.items()},
        in_hand={name: _copy(item) for name, item in (in_hand or {}).items()},
    )


def restore(state: State, moment: Moment) -> None:
    """Put a moment into a fresh state of the same graph. The moment stays as it is, so it can be used again.

    What sources have in hand is for the workers, which are not here.
    """
    for node in state.nodes.values():
        name = node.spec.name
        for edge in node.inputs:
            _restore_edge(edge, moment.edges[edge.name])
        node.meter = _copied(moment.meters[name])
        if name in moment.complete:
            node.completed()
        node.ready.extend(map(_copy, moment.ready.get(name, ())))
        if node.spec.kind == "group" and node.groups is not None:
            _restore_groups(node.groups, moment.groups[name])
        if node.spec.kind == "sink" and node.admission is not None:
            node.admission.resume(moment.tickets[name])
        if node.fan is not None:
            node.fan.turn = moment.turns[name]
        node.given = moment.given.get(name, node.given)
        if name in moment.budgets:
            node.budget.resume(moment.budgets[name])
    for name, (version, published, skipped) in moment.cells.items():
        cell = state.cells[name]
        cell.version, cell.published, cell.skipped = version, published, skipped
    for pool, limit in state.pools.adaptive.items():  # the others have the size that they are declared with now
        state.pools.resize(pool, max(limit.least, min(limit.most, moment.sizes.get(pool, limit.least))))


def _copy(item: Item) -> Item:
    return Item(
        item.value, item.path, item.birth, item.member, item.retry, item.version, item.failed, item.position, item.attempt,
        item.retries,
    )  # fmt: skip


def _given_back(item: Item) -> Item:
    again = _copy(item)
    again.attempt += 1
    return again


def _edge(edge: Channel) -> EdgeMoment:
    items = [*map(_copy, edge.buffer), *map(_given_back, edge.out.values())]
    return EdgeMoment(tuple(sorted(items, key=_POSITION)), edge.put_count, edge.high_water, edge.closed)


def _restore_edge(edge: Channel, moment: EdgeMoment) -> None:
    edge.resume(map(_copy, moment.items), moment.put_count, moment.high_water, closed=moment.closed)


def _copied(meter: Meter) -> Meter:
    return replace(
        meter, dropped=meter.dropped.copy(), lost=meter.lost.copy(), failures=dict(meter.failures), seconds=dict(meter.seconds)
    )


def _meter(node: NodeState) -> Meter:
    meter = _copied(node.meter)
    meter.given_back += sum(edge.leased for edge in node.inputs)
    return meter


def _copied_group(group: OpenGroup) -> OpenGroup:
    return replace(
        group, values=group.values.copy(), failures=group.failures.copy(), failed=group.failed.copy(),
        versions=group.versions.copy(), member_retries=group.member_retries.copy(),
    )  # fmt: skip


def _groups(groups: Groups) -> GroupsMoment:
    open_groups = {birth: _copied_group(group) for birth, group in groups.open.items()}
    return GroupsMoment(open_groups, groups.opened, groups.late, tuple(map(_copy, groups.retries)))


def _restore_groups(groups: Groups, moment: GroupsMoment) -> None:
    groups.open = {birth: _copied_group(group) for birth, group in moment.open.items()}
    groups.opened, groups.late = moment.opened, moment.late
    groups.retries.extend(map(_copy, moment.retries))


def _tickets(sink: NodeState) -> Tickets:
    admission = sink.admission
    assert admission is not None
    given_back = {item.birth: item.version for edge in sink.inputs for item in edge.out.values()}
    return admission.moment(given_back)

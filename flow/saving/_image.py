"""A moment as bytes and back: first a frame that tells where each value was, then the values, one after another.

Each value is written with the type that its edge declares, and nothing else: what is read is made of the graph's own types. The
frame and the values are blocks with a length before them, so that a thread can write one after another and let the loop have
the interpreter in between.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from .._codec import PLAIN, Codec, Hooks
from .._core.budget import Spent
from .._core.freshness import Tickets
from .._core.groups import OpenGroup
from .._core.item import Item
from .._core.meter import Meter, State
from .._core.moment import EdgeMoment, GroupsMoment, Moment
from .._errors import CannotResume, NotResumable
from .._spec import Spec
from .._types import hints_of
from ._commit import Commit
from ._declared import Resumable
from ._renamed import renamed

_LENGTH = 8


class _Item(msgspec.Struct, frozen=True, array_like=True):
    """An item without its value."""

    path: tuple[int, ...]
    birth: int
    member: int | None
    retry: int
    version: int | None
    failed: str | None
    position: int
    attempt: int
    retries: int


class _Edge(msgspec.Struct, frozen=True, array_like=True):
    items: list[_Item]
    put_count: int
    high_water: int
    closed: bool


class _Group(msgspec.Struct, frozen=True, array_like=True):
    origin: _Item
    size: int
    values: dict[int, _Item]
    failures: dict[int, str]
    failed: dict[int, _Item]
    versions: dict[int, int]
    member_retries: dict[int, int]
    version: int | None


class _Groups(msgspec.Struct, frozen=True, array_like=True):
    open: dict[int, _Group]
    opened: int
    late: int
    retries: list[_Item]


class _Meter(msgspec.Struct, frozen=True, array_like=True):
    finished: int
    steps: int
    dropped: dict[str, int]
    lost: dict[str, int]
    retried: int
    given_back: int
    recalled: int
    failures: dict[str, str]
    seconds: dict[State, float]


class _Frame(msgspec.Struct, frozen=True):
    """A moment without the values of its items, and the states of stages, which are written with types of their own."""

    edges: dict[str, _Edge]
    meters: dict[str, _Meter]
    complete: list[str]
    ready: dict[str, list[_Item]]
    groups: dict[str, _Groups]
    tickets: dict[str, Tickets]
    cells: dict[str, tuple[int, int, int]]
    turns: dict[str, list[int]]
    sizes: dict[str, int]
    given: dict[str, int]
    budgets: dict[str, Spent]
    in_hand: dict[str, _Item]
    states: dict[str, bytes]


class Ports:
    """The codecs of one graph: of what its edges carry, and of the states of what it is made of.

    Args:
        spec: of the graph.
        resumables: what declares a state, by name.
        hooks: for what msgpack has no type for.

    Attributes:
        refusals: what cannot be saved, as errors, each with the user's own line; empty where all can.
    """

    def __init__(self, spec: Spec, resumables: dict[str, Any], hooks: Hooks = PLAIN) -> None:
        self.refusals: list[tuple[NotResumable, str]] = []
        self._values: dict[str, Codec] = {}
        self._states: dict[str, Codec] = {}
        for name, node in spec.nodes.items():
            if node.kind != "sink":
                self._add(self._values, name, node.gives, f"{spec.name}.{name}.out", hooks, node.where)
        places = {name: node.where for name, node in spec.nodes.items()}
        for name, one in resumables.items():
            self._add(self._states, name, hints_of(one.state)[1], f"{spec.name}.{name}.state()", hooks, places.get(name, ""))
        self._before = {edge.name: edge.source for edge in spec.edges}
        self._takes = {name: spec.inputs(name)[0].source for name in spec.nodes if spec.inputs(name)}
        self._openers = {name: spec.path(name)[0] for name, node in spec.nodes.items() if node.kind == "group"}

    def value(self, node: str) -> Codec:
        """The codec of what a node gives."""
        return self._values[node]

    def state(self, name: str) -> Codec:
        """The codec of a state."""
        return self._states[name]

    def of_edge(self, edge: str) -> Codec:
        """The codec of what an edge carries."""
        return self._values[self._before[edge]]

    def of_members(self, group: str) -> Codec:
        """The codec of what a group node takes."""
        return self._values[self._takes[group]]

    def of_origins(self, group: str) -> Codec:
        """The codec of what the groups of a group node were opened from."""
        return self._values[self._takes[self._openers[group]]]

    def of_issued(self, group: str) -> Codec:
        """The codec of what the repeat of a group node gives."""
        return self._values[self._openers[group]]

    def _add(self, codecs: dict[str, Codec], name: str, hint: Any, place: str, hooks: Hooks, where: str) -> None:
        def refuse(expected: str, got: str, remedy: str) -> NotResumable:
            return NotResumable(place, f"{expected}, to be saved", got, remedy)

        try:
            codecs[name] = Codec(hint, refuse, hooks)
        except NotResumable as error:
            self.refusals.append((error, where))


def blocks(moment: Moment, states: dict[str, bytes], ports: Ports) -> Iterator[bytes]:
    """Write a moment, and the states of what the graph is made of, which are written already, block by block.

    All is read again at once: what could not be would be found out only by a run that has to go on from it.

    Raises:
        NotResumable: a value, or a state, is not of its declared type.
    """
    for name, state in states.items():
        ports.state(name).decode(state)
    frame = _Frame(
        edges={name: _Edge(_bare(e.items), e.put_count, e.high_water, e.closed) for name, e in moment.edges.items()},
        meters={name: _meter(meter) for name, meter in moment.meters.items()},
        complete=sorted(moment.complete),
        ready={name: _bare(items) for name, items in moment.ready.items()},
        groups={name: _groups(groups) for name, groups in moment.groups.items()},
        tickets=moment.tickets,
        cells=moment.cells,
        turns={name: list(turn) for name, turn in moment.turns.items()},
        sizes=moment.sizes,
        given=moment.given,
        budgets=moment.budgets,
        in_hand={name: _bare_item(item) for name, item in moment.in_hand.items()},
        states=states,
    )
    yield _block(msgspec.msgpack.encode(frame))
    for item, codec in _items(moment, ports):
        content = codec.encode(item.value)
        codec.decode(content)
        yield _block(content)


def read_moment(content: bytes, ports: Ports, names: Mapping[str, str] | None = None) -> tuple[Moment, dict[str, bytes]]:
    """Read a moment, and the states as they were written, each for ``Ports.state``.

    Args:
        content: of the file.
        ports: of the graph that is to go on.
        names: names of now by those of before, of nodes and cells that are called otherwise now.

    Raises:
        CannotResume: it is of another graph, or damaged.
    """
    try:
        parts = _parts(content)
        frame = _by_names(msgspec.msgpack.decode(next(parts), type=_Frame), names or {})
        moment = _moment(frame)
        for item, codec in _items(moment, ports):
            item.value = codec.decode(next(parts))
        if next(parts, None) is not None:
            raise ValueError("more values than items")
    except (msgspec.DecodeError, KeyError, ValueError, StopIteration, NotResumable) as error:
        raise CannotResume(
            f"expected the moment of this graph, got another, or damaged bytes ({type(error).__name__}: {error}); "
            "resume with the graph that was saved, or from an older commit"
        ) from error
    return moment, frame.states


def read_state(commit: Commit, name: str, one: Resumable, hooks: Hooks = PLAIN) -> Any:
    """Read one state of a commit, for whoever wants nothing else of its moment.

    Args:
        commit: of a graph.
        name: of the node, or ``beside `` and the name of what stood beside the graph.
        one: declares states of this type.
        hooks: for what msgpack has no type for.

    Raises:
        CannotResume: there is none of this name, or one of another type.
    """
    place = f"{commit.folder}: {name}"

    def refuse(expected: str, got: str, remedy: str) -> NotResumable:
        return NotResumable(place, expected, got, remedy)

    try:
        frame = msgspec.msgpack.decode(next(_parts(commit.read_moment())), type=_Frame)
        return Codec(hints_of(one.state)[1], refuse, hooks).decode(frame.states[name])
    except (msgspec.DecodeError, KeyError, ValueError, StopIteration, NotResumable) as error:
        raise CannotResume(
            f"{place}: expected a state of this, got none, or another ({type(error).__name__}: {error}); "
            "read it with what saved it"
        ) from error


def _by_names(frame: _Frame, names: Mapping[str, str]) -> _Frame:
    if not names:
        return frame
    parts: dict[str, Any] = {field: getattr(frame, field) for field in frame.__struct_fields__}
    del parts["complete"]
    keyed: dict[str, Any] = {field: renamed(part, names) for field, part in parts.items()}
    return msgspec.structs.replace(frame, complete=[names.get(name, name) for name in frame.complete], **keyed)


def _items(moment: Moment, ports: Ports) -> Iterator[tuple[Item, Codec]]:
    """Every item of a moment with the codec of its value, in an order that the moment alone decides."""
    for name, edge in moment.edges.items():
        codec = ports.of_edge(name)
        for item in edge.items:
            yield item, codec
    for name, items in moment.ready.items():
        codec = ports.value(name)
        for item in items:
            yield item, codec
    for name, groups in moment.groups.items():
        origins, members, issued = ports.of_origins(name), ports.of_members(name), ports.of_issued(name)
        for group in groups.open.values():
            yield group.origin, origins
            for item in (*group.values.values(), *group.failed.values()):
                yield item, members
        for item in groups.retries:
            yield item, issued
    for name, item in moment.in_hand.items():
        yield item, ports.value(name)


def _moment(frame: _Frame) -> Moment:
    return Moment(
        edges={n: EdgeMoment(tuple(map(_whole, e.items)), e.put_count, e.high_water, e.closed) for n, e in frame.edges.items()},
        meters={name: _read_meter(meter) for name, meter in frame.meters.items()},
        complete=frozenset(frame.complete),
        ready={name: tuple(map(_whole, items)) for name, items in frame.ready.items()},
        groups={name: _read_groups(groups) for name, groups in frame.groups.items()},
        tickets=frame.tickets,
        cells=frame.cells,
        turns={name: tuple(turn) for name, turn in frame.turns.items()},
        sizes=frame.sizes,
        given=frame.given,
        budgets=frame.budgets,
        in_hand={name: _whole(item) for name, item in frame.in_hand.items()},
    )


def _bare_item(item: Item) -> _Item:
    return _Item(
        item.path, item.birth, item.member, item.retry, item.version, item.failed, item.position, item.attempt, item.retries
    )  # fmt: skip


def _bare(items: tuple[Item, ...]) -> list[_Item]:
    return [_bare_item(item) for item in items]


def _whole(item: _Item) -> Item:
    return Item(None, *msgspec.structs.astuple(item))


def _meter(meter: Meter) -> _Meter:
    return _Meter(
        meter.finished, meter.steps, dict(meter.dropped), dict(meter.lost), meter.retried, meter.given_back, meter.recalled,
        meter.failures, dict(meter.seconds),
    )  # fmt: skip


def _read_meter(meter: _Meter) -> Meter:
    dropped, lost = Counter(meter.dropped), Counter(meter.lost)
    return Meter(
        meter.finished, meter.steps, dropped, lost, meter.retried, meter.given_back, meter.recalled, meter.failures,
        meter.seconds,
    )  # fmt: skip


def _each(items: dict[int, Any], change: Callable[[Any], Any]) -> dict[int, Any]:
    return {index: change(item) for index, item in items.items()}


def _groups(groups: GroupsMoment) -> _Groups:
    return _Groups(_each(groups.open, _group), groups.opened, groups.late, _bare(groups.retries))


def _group(group: OpenGroup) -> _Group:
    return _Group(
        _bare_item(group.origin), group.size, _each(group.values, _bare_item), group.failures,
        _each(group.failed, _bare_item), group.versions, group.member_retries, group.version,
    )  # fmt: skip


def _read_groups(groups: _Groups) -> GroupsMoment:
    return GroupsMoment(_each(groups.open, _read_group), groups.opened, groups.late, tuple(map(_whole, groups.retries)))


def _read_group(group: _Group) -> OpenGroup:
    return OpenGroup(
        _whole(group.origin), group.size, _each(group.values, _whole), group.failures, _each(group.failed, _whole),
        group.versions, group.member_retries, group.version,
    )  # fmt: skip


def _block(content: bytes) -> bytes:
    return len(content).to_bytes(_LENGTH, "little") + content


def _parts(content: bytes) -> Iterator[memoryview]:
    whole, at = memoryview(content), 0
    while at < len(whole):
        length = int.from_bytes(whole[at : at + _LENGTH], "little")
        at += _LENGTH
        if at + length > len(whole):
            raise ValueError("a block is cut short")
        yield whole[at : at + length]
        at += length

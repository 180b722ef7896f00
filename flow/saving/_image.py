"""A moment as bytes and back: first a frame that tells where each value was, then the values, one after another.

Each value is written with the type that its edge declares, and nothing else: what is read is made of the graph's own types. The
frame and the values are blocks with a length before them, so that a thread can write one after another and let the loop have
the interpreter in between.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, get_origin

import msgspec

from .._codec import PLAIN, Codec, Hooks
from .._core.groups import OpenGroup
from .._core.item import Item
from .._core.moment import GroupsMoment, Moment
from .._errors import CannotResume, NotResumable
from .._spec import Spec
from .._types import hints_of
from ._commit import Commit
from ._declared import Resumable
from ._renamed import renamed

_LENGTH = 8


class _Frame(msgspec.Struct, frozen=True):
    """A moment without the values of its items, and the states of stages, which are written with types of their own."""

    moment: Moment
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
    yield _block(msgspec.msgpack.encode(_Frame(_bare(moment), states)))
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
        frame = _decode(next(parts))
        moment, states = _by_names(frame.moment, names or {}), renamed(frame.states, names or {})
        for item, codec in _items(moment, ports):
            item.value = codec.decode(next(parts))
        if next(parts, None) is not None:
            raise ValueError("more values than items")
    except (msgspec.DecodeError, KeyError, ValueError, StopIteration, NotResumable) as error:
        raise CannotResume(
            f"expected the moment of this graph, got another, or damaged bytes ({type(error).__name__}: {error}); "
            "resume with the graph that was saved, or from an older commit"
        ) from error
    return moment, states


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
        frame = _decode(next(_parts(commit.read_moment())))
        return Codec(hints_of(one.state)[1], refuse, hooks).decode(frame.states[name])
    except (msgspec.DecodeError, KeyError, ValueError, StopIteration, NotResumable) as error:
        raise CannotResume(
            f"{place}: expected a state of this, got none, or another ({type(error).__name__}: {error}); "
            "read it with what saved it"
        ) from error


def _bare(moment: Moment) -> Moment:
    """A moment of copies of its items, which hold nothing: the graph that goes on has some of the items themselves."""
    return replace(
        moment,
        edges={name: replace(edge, items=tuple(map(_empty, edge.items))) for name, edge in moment.edges.items()},
        ready={name: tuple(map(_empty, items)) for name, items in moment.ready.items()},
        groups={name: _bare_groups(groups) for name, groups in moment.groups.items()},
        in_hand={name: _empty(item) for name, item in moment.in_hand.items()},
    )


def _bare_groups(groups: GroupsMoment) -> GroupsMoment:
    return replace(
        groups,
        open={birth: _bare_group(group) for birth, group in groups.open.items()},
        retries=tuple(map(_empty, groups.retries)),
    )


def _bare_group(group: OpenGroup) -> OpenGroup:
    values, failed = ({index: _empty(item) for index, item in part.items()} for part in (group.values, group.failed))
    return replace(group, origin=_empty(group.origin), values=values, failed=failed)


def _empty(item: Item) -> Item:
    return msgspec.structs.replace(item, value=None)


def _known(kind: Any, content: Any) -> "Counter[str]":
    """Make the one class in a moment that msgspec does not make by itself."""
    assert get_origin(kind) is Counter
    return Counter(content)


_decode = msgspec.msgpack.Decoder(_Frame, dec_hook=_known).decode


def _by_names(moment: Moment, names: Mapping[str, str]) -> Moment:
    keyed = {field.name: getattr(moment, field.name) for field in fields(moment) if field.name != "complete"}
    return Moment(
        complete=frozenset(names.get(name, name) for name in moment.complete),
        **{name: renamed(part, names) for name, part in keyed.items()},
    )


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

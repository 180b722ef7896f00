"""Which item a node with several edges moves next, and where to. No stage runs here and no lease is held over a wait.

A broadcast gives each item to every output once all have room. A balance gives it to the next output in turn that has room and
is not complete: such a branch would swallow what the others need. A route gives it to the output of its key, and waits for room
there. A merge takes from its inputs by smooth weighted round robin: each input with an item earns its weight, the richest goes
and pays for all, so that in every round each has its share and none is served in a row. An input passed over ``patience`` times
in a row goes first.

Source of the round robin: nginx's smooth weighted balancing (2012); here inputs without an item earn nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._spec import NodeSpec, enough_patience
from .channel import Channel
from .item import Item


class Fan:
    """The edges of one node and the choice between them.

    Args:
        inputs: edges before it, in order of declaration.
        outputs: edges behind it, in order of declaration.
    """

    def __init__(self, inputs: Sequence[Channel], outputs: Sequence[Channel]) -> None:
        self.inputs, self.outputs = inputs, outputs

    def choose(self) -> tuple[Channel, Sequence[Channel]] | None:
        """The input whose first item goes now, and the outputs that get it; ``None`` where it has to wait."""
        raise NotImplementedError

    def moved(self, source: Channel) -> None:
        """The chosen move was made."""

    def copies(self, item: Item) -> list[Item]:
        """What the outputs get of an item, in order: the item itself."""
        return [item]

    @property
    def turn(self) -> tuple[int, ...]:
        """What it remembers of whose turn it is."""
        return ()

    @turn.setter
    def turn(self, turn: tuple[int, ...]) -> None: ...

    @property
    def blocked(self) -> Channel | None:
        """The edge without room that holds an item up; ``None`` where there is no item."""
        head = next((edge.buffer[0] for edge in self.inputs if edge.buffer), None)
        return None if head is None else next((edge for edge in self.outputs if not edge.fits([head])), None)


class Broadcast(Fan):
    """Every output gets each item."""

    def choose(self) -> tuple[Channel, Sequence[Channel]] | None:
        """See ``Fan``."""
        source = self.inputs[0]
        if source.buffer and all(edge.fits([source.buffer[0]]) for edge in self.outputs):
            return source, self.outputs
        return None

    def copies(self, item: Item) -> list[Item]:
        """One for each output, told apart by its path."""
        return [
            Item(item.value, (*item.path, index), item.birth, item.member, item.retry, item.version, item.failed)
            for index in range(len(self.outputs))
        ]


class Balance(Fan):
    """One output gets an item, in turn."""

    _next = _after = 0

    @property
    def turn(self) -> tuple[int, ...]:
        """See ``Fan``."""
        return (self._next,)

    @turn.setter
    def turn(self, turn: tuple[int, ...]) -> None:
        (self._next,) = turn

    def choose(self) -> tuple[Channel, Sequence[Channel]] | None:
        """See ``Fan``."""
        source = self.inputs[0]
        if source.buffer:
            count = len(self.outputs)
            for offset in range(count):
                edge = self.outputs[(self._next + offset) % count]
                if not edge.unwanted and edge.fits([source.buffer[0]]):
                    self._after = (self._next + offset + 1) % count
                    return source, [edge]
        return None

    def moved(self, source: Channel) -> None:
        """See ``Fan``."""
        self._next = self._after


class Route(Fan):
    """The output of its key gets an item.

    Args:
        by: gives the key of a value.
        branches: position of the output of each key.
    """

    def __init__(
        self, inputs: Sequence[Channel], outputs: Sequence[Channel], by: Callable[[Any], Any], branches: Mapping[Any, int]
    ) -> None:
        super().__init__(inputs, outputs)
        self._by, self._branches = by, branches
        self._known: tuple[int, Channel] | None = None  # of the item that waits: its position, and where it goes

    def choose(self) -> tuple[Channel, Sequence[Channel]] | None:
        """See ``Fan``.

        Raises:
            Exception: what ``by`` raised.
            KeyError: there is no branch for the key.
        """
        source = self.inputs[0]
        if not source.buffer:
            return None
        target = self._target(source.buffer[0])
        return (source, [target]) if target.fits([source.buffer[0]]) else None

    def _target(self, item: Item) -> Channel:
        if self._known is None or self._known[0] != item.position:
            key = self._by(item.value)
            if key not in self._branches:
                raise KeyError(f"expected a key with a branch ({', '.join(map(repr, self._branches))}), got {key!r}")
            self._known = (item.position, self.outputs[self._branches[key]])
        return self._known[1]

    @property
    def blocked(self) -> Channel | None:
        """See ``Fan``."""
        source = self.inputs[0]
        return self._known[1] if source.buffer and self._known is not None else None


class Merge(Fan):
    """The output gets the items of all inputs.

    Args:
        weights: of each input.
        patience: how often in a row an input with an item is passed over at most.
    """

    def __init__(self, inputs: Sequence[Channel], outputs: Sequence[Channel], weights: Sequence[int], patience: int) -> None:
        super().__init__(inputs, outputs)
        self._weights, self._patience = weights, patience
        self._credit = [0] * len(inputs)
        self._passed = [0] * len(inputs)

    @property
    def turn(self) -> tuple[int, ...]:
        """See ``Fan``."""
        return (*self._credit, *self._passed)

    @turn.setter
    def turn(self, turn: tuple[int, ...]) -> None:
        self._credit, self._passed = list(turn[: len(self.inputs)]), list(turn[len(self.inputs) :])

    def choose(self) -> tuple[Channel, Sequence[Channel]] | None:
        """See ``Fan``."""
        ready = self._ready()
        if not ready:
            return None
        source = self.inputs[self._first(ready)]
        return (source, self.outputs) if self.outputs[0].fits([source.buffer[0]]) else None

    @property
    def blocked(self) -> Channel | None:
        """See ``Fan``. The item whose turn it is may be too heavy where that of another input is not."""
        return self.outputs[0] if self._ready() and self.choose() is None else None

    def moved(self, source: Channel) -> None:
        """See ``Fan``."""
        total = chosen = 0
        for index, edge in enumerate(self.inputs):
            if edge.buffer or edge is source:
                self._credit[index] += self._weights[index]
                total += self._weights[index]
                self._passed[index] += 1
                if edge is source:
                    chosen = index
            else:
                self._credit[index] = self._passed[index] = 0  # what waits for nothing saves nothing up
        self._credit[chosen] -= total
        self._passed[chosen] = 0

    def _ready(self) -> list[int]:
        return [index for index, edge in enumerate(self.inputs) if edge.buffer]

    def _first(self, ready: list[int]) -> int:
        late = [index for index in ready if self._passed[index] >= self._patience]
        if late:
            return max(late, key=lambda index: self._passed[index])
        return max(ready, key=lambda index: self._credit[index] + self._weights[index])


def fan_of(spec: NodeSpec, inputs: Sequence[Channel], outputs: Sequence[Channel]) -> Fan | None:
    """The choice a node makes; ``None`` for a kind that has none."""
    if spec.kind == "broadcast":
        return Broadcast(inputs, outputs)
    if spec.kind == "balance":
        return Balance(inputs, outputs)
    if spec.kind == "route":
        assert spec.by is not None
        names = [edge.name.removeprefix(f"{spec.name}->") for edge in outputs]
        return Route(inputs, outputs, spec.by, {key: names.index(target) for key, target in spec.branches.items()})
    if spec.kind == "merge":
        weights = [spec.weights[edge.name.removesuffix(f"->{spec.name}")] for edge in inputs]
        patience = enough_patience(weights) if spec.patience is None else spec.patience
        return Merge(inputs, outputs, weights, patience)
    return None

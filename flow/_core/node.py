"""One node of a running graph: its edges, counts, and what its attempts must wait for."""

from collections import deque
from collections.abc import Hashable
from heapq import heappop, heappush

from .._errors import StageFailed
from .._spec import NodeSpec
from .budget import Spending
from .cell import Cell
from .channel import Channel
from .fans import Fan
from .freshness import Admission
from .groups import Groups
from .item import Item, Wake
from .meter import Meter


class NodeState:
    """One node of a running graph.

    Attributes:
        spec: its declaration.
        depth: distance from the sources.
        inputs: edges before it.
        outputs: edges behind it.
        input: the first edge before it, ``None`` for a source.
        output: the first edge behind it, ``None`` for a sink.
        fan: for a kind with several edges at one end, the choice between them.
        prefix: what the paths of a source's items begin with, where they may meet those of another.
        meter: its counts and times.
        budget: whether it still gets anywhere.
        groups: the pair's groups, for a repeat, a group, and every node between.
        admission: for a repeat, its group and every node behind it up to the sink of a feedback edge with freshness.
        cell: what the node reads.
        ready: for a group, closed groups that wait for room.
        complete: whether its line has all it was asked for, so that what is still on its way is surplus.
        given: for a source of versions, the newest it gave; -1 before the first.
        turns: for a stage that keeps order, positions of the leases out.
        busy: for a stage with a key, the keys of the leases out.
        on_turn: called when one of them ended; set by the node's workers.
    """

    __slots__ = (
        "_keys", "_turn_heap", "admission", "budget", "busy", "cell", "complete", "depth", "fan", "given", "groups", "input",
        "inputs", "meter", "on_turn", "output", "outputs", "prefix", "ready", "spec", "turns",
    )  # fmt: skip

    def __init__(self, spec: NodeSpec, depth: int) -> None:
        self.spec, self.depth = spec, depth
        self.inputs: list[Channel] = []
        self.outputs: list[Channel] = []
        self.input: Channel | None = None
        self.output: Channel | None = None
        self.fan: Fan | None = None
        self.prefix: tuple[int, ...] = ()
        self.meter = Meter()
        self.budget = Spending(spec)
        self.groups: Groups | None = None
        self.admission: Admission | None = None
        self.cell: Cell | None = None
        self.ready: deque[Item] = deque()
        self.complete = False
        self.given = -1
        self.turns: set[int] = set()
        self._turn_heap: list[int] = []  # the same, lowest first, with what has ended still in it
        self.busy: set[Hashable] = set()
        self.on_turn: Wake | None = None
        self._keys: dict[int, Hashable] = {}  # by position, of what waits and what is out

    def completed(self) -> None:
        """Its line has all it was asked for."""
        self.complete = True
        for edge in self.inputs:
            edge.unwanted = True

    @property
    def first_turn(self) -> int | None:
        """The lowest position that is out on a lease, of a stage that keeps order."""
        heap = self._turn_heap
        while heap and heap[0] not in self.turns:
            heappop(heap)
        return heap[0] if heap else None

    def next_index(self) -> int | None:
        """Index of the first item in the buffer that may be started: of no key that is being handled; ``None`` to wait.

        Raises:
            StageFailed: ``key`` raised.
        """
        assert self.input is not None
        if self.spec.key is None:
            return 0 if self.input.buffer else None
        for index, item in enumerate(self.input.buffer):
            if item.position not in self._keys:
                try:
                    key = self.spec.key(item.value)
                    hash(key)  # here, where the item can be named
                    self._keys[item.position] = key
                except Exception as error:
                    raise StageFailed(self.spec.name, item.path, item.retry, item.attempt, error) from error
            if self._keys[item.position] not in self.busy:
                return index
        return None

    def began(self, item: Item) -> None:
        """An attempt at an item is under way."""
        if self.spec.order == "input":
            self.turns.add(item.position)
            heappush(self._turn_heap, item.position)
        if self.spec.key is not None:
            self.busy.add(self._keys[item.position])

    def ended(self, item: Item) -> None:
        """The attempt is over; others of its kind may go on."""
        if self.spec.order == "input":
            self.turns.remove(item.position)
            if self.on_turn is not None:
                self.on_turn()
        if self.spec.key is not None:
            self.busy.remove(self._keys.pop(item.position))
            if self.input is not None:
                self.input.consumers.wake_first()

"""What the workers of a run tell its journal, and what the journal spares them: the run's part of ``flow/saving/_journal.py``.

What was made once stands in for an attempt if it is what the attempt could have made now. Its item must be the same, and so
must the version it was made with: not only its number, since a run that goes on makes the steps after the commit anew, and a
number may come to mean another value. So each version has a *trail*, worked out of the versions before it, of the items of its
step, in order, and of the versions that the parts of each were made with. With ``max_lag=0`` steps are made anew as they were,
and so are trails; with more, what was made with a version that comes out otherwise is made again. Last, it must not be older
than the freshness of its line allows.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from ._codec import Codec
from ._core.freshness import Admission
from ._core.item import Item
from ._core.node import NodeState
from ._core.state import State
from ._errors import NotResumable
from ._item import Failed, Filtered, Many
from ._policy import Failure
from .saving._image import Ports
from .saving._journal import Journal
from .saving._records import Begun, Forgiven, Key, Made, Outcome, Step

_MOST_VERSIONS = 256
"""Versions of a cell whose trails are known. What was made with an older one is made again."""


class Recalled(NamedTuple):
    """What came of an earlier attempt: the outcome of the stage, or that it failed and was ``retried``."""

    outcome: Any
    retried: bool = False


class Trails:
    """What each version of the cells of one graph was made of, as a number.

    Args:
        state: of the run.
        journal: where the trails are that were known before.
        resumed: whether the run goes on from a commit.
    """

    def __init__(self, state: State, journal: Journal, *, resumed: bool) -> None:
        self._state, self._journal = state, journal
        self._graph = state.plan.spec.name
        if not resumed:
            for cell in state.cells:  # what a beginning is made of is the latest commit before it
                name = f"{self._graph}.{cell}"
                journal.parts.pop(name, None)
                journal.trails[name] = {0: _trail(name, journal.settings, journal.number)}

    def of(self, cell: str, version: int | None) -> int | None:
        """The trail of a version; ``None`` where it is not known."""
        return None if version is None else self._known(cell).get(version)

    def passed_on(self, node: NodeState, item: Item) -> None:
        """A stage has handed on what it made of an item, which will be a part of a step."""
        if node.admission is not None:
            parts = self._journal.parts.setdefault(self._line(node.admission), {})
            seen = None if item.seen is None else self.of(node.spec.reads or "", item.seen) or secrets.randbits(64)
            parts[item.birth] = parts.get(item.birth, 0) ^ _trail(node.spec.name, item.path, item.retry, seen)

    def stepped(self, sink: str, items: Sequence[Item]) -> None:
        """A sink took these items into a step and has published what it made of them."""
        admission = self._state.nodes[sink].admission
        parts = {} if admission is None else self._journal.parts.get(self._line(admission), {})
        taken = [(item.path, item.birth, item.version, parts.get(item.birth, 0)) for item in items]
        if admission is not None:
            self._journal.parts[self._line(admission)] = {
                birth: part for birth, part in parts.items() if admission.holds(birth)
            }
        for feedback in self._state.plan.spec.feedback:
            if feedback.source == sink:
                known, version = self._known(feedback.cell), self._state.cells[feedback.cell].published
                before = known.get(version - 1, None)
                before = secrets.randbits(64) if before is None else before  # it may have been anything
                known[version] = _trail(before, self._journal.settings, taken)
                known.pop(version - _MOST_VERSIONS, None)

    def _line(self, admission: Admission) -> str:
        """A line of groups, whose births are its own: two lines of a graph count theirs alike."""
        return f"{self._graph}.{admission.cell}"

    def _known(self, cell: str) -> dict[int, int]:
        return self._journal.trails.setdefault(f"{self._graph}.{cell}", {})


class NodeNotes:
    """The journal of one stage before a durable edge, as its workers use it.

    Args:
        state: of the run.
        node: the stage.
        journal: of the program.
        codec: of what the stage gives.
        trails: of the graph.
    """

    def __init__(self, state: State, node: NodeState, journal: Journal, codec: Codec, trails: Trails) -> None:
        self._state, self._node, self._journal, self._codec, self._trails = state, node, journal, codec, trails
        self._graph, self._name = state.plan.spec.name, node.spec.name
        only = next(iter(state.cells)) if len(state.cells) == 1 else node.spec.reads
        self._bounding = only if node.admission is None else node.admission.cell

    def begin(self, item: Item) -> None:
        """An attempt begins: it has a number that no attempt of an earlier process had."""
        item.attempt = max(item.attempt, self._journal.next_attempt(self._key(item)))
        self._journal.append(Begun(self._graph, self._name, item.path, item.retry, item.attempt))

    def recall(self, item: Item) -> Recalled | None:
        """What stands in for the attempt at an item that was just leased; ``None`` where it has to be made."""
        made = self._journal.find(self._key(item))
        if made is None or not self._is_same(made, item):
            return None
        if made.outcome == "retried":
            self._journal.delivered(made.key)
            self._note(made)
            return Recalled(None, retried=True)
        if made.values and made.seen is not None and not self._is_fresh(made, item):
            return None
        try:
            outcome = self._outcome(made)
        except NotResumable:  # the type was changed
            return None
        if made.seen is not None:
            self._state.saw(self._node, item, made.seen)
        self._node.meter.recalled += 1
        return Recalled(outcome)

    def made(self, item: Item, outcome: Any) -> None:
        """An attempt came to its end, and nothing has seen that yet.

        Raises:
            NotResumable: it is not what the stage is annotated with.
        """
        if isinstance(outcome, Failed):
            failed = cast("Failed[Any]", outcome)
            self._keep(item, "failed", failed.reason, failed.detail, [failed.value])
        elif isinstance(outcome, Filtered):
            self._keep(item, "filtered", outcome.reason, outcome.detail)
        elif isinstance(outcome, Failure):
            self._keep(item, "dropped", outcome.kind, outcome.message)
        elif isinstance(outcome, Many):
            self._keep(item, "many", values=cast("Many[Any]", outcome).values)
        else:
            self._keep(item, "plain", values=[outcome])

    def retried(self, item: Item, failure: Failure) -> None:
        """An attempt failed, and the item is tried again at once."""
        self._keep(item, "retried", failure.kind, failure.message)

    def passed_on(self, item: Item) -> None:
        """What came of an item is on the edge."""
        self._trails.passed_on(self._node, item)
        self.gone(item)

    def gone(self, item: Item) -> None:
        """The item is gone, and nothing came of it, or that is on its way."""
        self._journal.delivered(self._key(item))

    def _key(self, item: Item) -> Key:
        return (self._graph, self._name, item.path, item.retry)

    def _keep(self, item: Item, outcome: Outcome, reason: str = "", detail: str = "", values: Sequence[Any] = ()) -> None:
        written, stamp = tuple(map(self._codec.encode, values)), self._state.stamp(self._node, item)
        made = Made(
            self._graph, self._name, item.path, item.retry, item.birth, item.member, item.attempt, item.version, item.seen,
            stamp, self._trails_of(item.seen, item.version), outcome, reason, detail, written,
        )  # fmt: skip
        self._journal.keep(made)

    def _trails_of(self, seen: int | None, before: int | None) -> tuple[int | None, int | None]:
        reads = self._node.spec.reads
        return (
            None if reads is None else self._trails.of(reads, seen),
            None if self._bounding is None else self._trails.of(self._bounding, before),
        )

    def _is_same(self, made: Made, item: Item) -> bool:
        """Whether an attempt now could have made it."""
        in_force = None if self._node.cell is None else self._node.cell.version
        if (made.birth, made.member, made.before) != (item.birth, item.member, item.version):
            return False
        if made.trails != self._trails_of(made.seen, item.version):
            return False
        for version, trail in zip((made.seen, made.before), made.trails, strict=True):
            if version is not None and trail is None:
                return False
        return in_force is None if made.seen is None else in_force is not None and made.seen <= in_force

    def _is_fresh(self, made: Made, item: Item) -> bool:
        admission = self._node.admission
        if admission is None or admission.cell != self._node.spec.reads:
            return True
        return admission.bears(item.birth, made.version)

    def _outcome(self, made: Made) -> Any:
        values = [self._codec.decode(value) for value in made.values]
        match made.outcome:
            case "failed":
                self._note(made)
                return Failed(values[0], made.reason, made.detail)
            case "filtered":
                return Filtered(made.reason, made.detail)
            case "dropped":
                self._note(made)
                return Failure(made.reason, made.detail)
            case "many":
                return Many(values)
            case _:
                return values[0]

    def _note(self, made: Made) -> None:
        """Keep the text of a failure as it was kept then: of an exception the last line of its traceback."""
        text = made.detail if made.outcome == "failed" else f"{made.reason}: {made.detail}"
        self._node.meter.failures.setdefault(made.reason, text)


class StepNotes:
    """The journal of one sink that takes steps.

    Args:
        state: of the run.
        node: the sink.
        journal: of the program.
        trails: of the graph.
    """

    def __init__(self, state: State, node: NodeState, journal: Journal, trails: Trails) -> None:
        self._state, self._node, self._journal, self._trails = state, node, journal, trails

    def stepped(self, items: Sequence[Item]) -> None:
        """A step of these items is complete and published."""
        name = self._node.spec.name
        self._trails.stepped(name, items)
        if self._journal.record:
            taken = tuple((item.path, item.birth, item.version) for item in items)
            self._journal.append(Step(self._state.plan.spec.name, name, self._node.meter.steps, taken))


def notes_of(state: State, journal: Journal, ports: Ports, *, resumed: bool) -> Mapping[str, NodeNotes | StepNotes]:
    """What the workers of each node use, by its name: those of stages before durable edges, and of sinks that take steps."""
    spec, trails = state.plan.spec, Trails(state, journal, resumed=resumed)
    found: dict[str, NodeNotes | StepNotes] = {}
    for edge in spec.edges:
        if edge.durable:
            found[edge.source] = NodeNotes(state, state.nodes[edge.source], journal, ports.value(edge.source), trails)
    for name, node in state.nodes.items():
        if node.spec.collect is not None:
            found[name] = StepNotes(state, node, journal, trails)
    return found


def forgive(journal: Journal, graph: str) -> None:
    """The graph ended in an error: whoever goes on tries again what failed."""
    journal.append(Forgiven(graph))


def _trail(*of: Any) -> int:
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(of), digest_size=8).digest(), "little")

"""What a run recorded of its training: the groups of each step, in the order in which they were trained. Read only.

A run with ``--options.record`` keeps its whole journal: what the last stage before the advantages made of each group, and which
groups each step took. A run that was stopped and went on made some of it twice. What counts is what came last: a step that was
taken again stands for its first take and for all after that, and a group is the one that was made last before its step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flow.saving import Digest, Made, Step, read_journal
from stages.arrays import ARRAYS
from stages.records import Group

_GROUP = msgspec.msgpack.Decoder(Group, dec_hook=ARRAYS.read, ext_hook=ARRAYS.read_ext)


@dataclass(frozen=True)
class Place:
    """One group of a step.

    Attributes:
        birth: its birth number.
        lag: versions between its dispatch and the step; ``None`` where it carried none.
        made: where in the journal it was made: the number of the record.
    """

    birth: int
    lag: int | None
    made: int


@dataclass(frozen=True)
class RecordedStep:
    """One step of the trainer.

    Attributes:
        number: from 1.
        places: its groups, in order.
        digest: of the parameters after it; ``None`` where the run was cut off before it was written down.
    """

    number: int
    places: tuple[Place, ...]
    digest: str | None = None


class Recorded:
    """The records of one graph.

    Args:
        journal: folder of the run's journal.
        graph: name of the graph.
        scored: name of the node whose groups were recorded.
        trainer: name of the sink.

    Attributes:
        steps: in order, without gaps but perhaps not from the first.

    Raises:
        LookupError: a step took a group that is not in the journal.
    """

    def __init__(self, journal: Path, graph: str, scored: str, trainer: str) -> None:
        self._journal, self._graph, self._scored, self._trainer = journal, graph, scored, trainer
        self.steps = self._read()

    def groups(self, steps: Sequence[RecordedStep]) -> Iterator[tuple[Place, Group]]:
        """The groups of consecutive steps, read as they are asked for: only those of steps still to come are held."""
        needed = {place.made for step in steps for place in step.places}
        held: dict[int, bytes] = {}
        made = ((at, record) for at, record in self._records() if isinstance(record, Made) and at in needed)
        for step in steps:
            for place in step.places:
                while place.made not in held:
                    at, record = next(made)
                    held[at] = record.values[0]
                yield place, _GROUP.decode(held.pop(place.made))

    def _read(self) -> list[RecordedStep]:
        steps: list[RecordedStep] = []
        latest: dict[tuple[int, ...], int] = {}
        for at, record in self._records():
            if isinstance(record, Made):
                if record.outcome == "plain":
                    latest[record.path] = at
            elif isinstance(record, Step):
                while steps and steps[-1].number >= record.number:
                    steps.pop()
                steps.append(RecordedStep(record.number, tuple(self._places(record, latest))))
            elif steps and steps[-1].number == record.number:
                steps[-1] = RecordedStep(record.number, steps[-1].places, record.digest)
        return steps

    def _records(self) -> Iterator[tuple[int, Made | Step | Digest]]:
        """Those of the graph, each with its number in the journal."""
        for at, record in enumerate(read_journal(self._journal)):
            if not isinstance(record, Made | Step | Digest) or record.graph != self._graph:
                continue
            if (record.node == self._scored) if isinstance(record, Made) else (record.sink == self._trainer):
                yield at, record

    def _places(self, step: Step, latest: dict[tuple[int, ...], int]) -> Iterator[Place]:
        for path, birth, version in step.items:
            if path not in latest:
                raise LookupError(
                    f"expected all groups of step {step.number} in {self._journal}, got none of birth {birth}; "
                    "only a run that was begun with --options.record keeps them"
                )
            yield Place(birth, None if version is None else step.number - 1 - version, latest[path])


class RecordedGroups:
    """A source that gives the groups of recorded steps.

    Args:
        recorded: of the run.
        steps: consecutive ones of it.
        expect: told (birth, lag) of each group as it is drawn.
    """

    def __init__(self, recorded: Recorded, steps: Sequence[RecordedStep], expect: Callable[[int, int | None], None]) -> None:
        self._groups, self._expect = recorded.groups(steps), expect

    def draw(self) -> Group:
        """Give the next group."""
        place, group = next(self._groups)
        self._expect(place.birth, place.lag)
        return group

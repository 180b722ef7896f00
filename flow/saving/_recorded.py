"""The steps of a sink as a journal has them that kept everything: what each took, in order, to be given to a sink again.

A run that was killed and went on made some of it twice. What counts is what came last: a step that was taken again stands for
its first take and for all that came after that, and what it took is what was made last before it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._journal import read_journal
from ._records import Digest, Made, Step


@dataclass(frozen=True)
class Taken:
    """One item of a step.

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
    """One step.

    Attributes:
        number: from 1.
        items: what it took, in order.
        digest: of the sink after it, see ``Digested``; ``None`` where the run was cut off before it was written down.
    """

    number: int
    items: tuple[Taken, ...]
    digest: str | None = None


class RecordedSteps:
    """The steps of one sink.

    Args:
        journal: its folder.
        graph: name of the graph.
        node: name of the stage before a durable edge whose values the steps took, perhaps changed by what is behind it.
        sink: name of the sink.

    Attributes:
        steps: in order; some may be missing, where the disk refused them.

    Raises:
        LookupError: a step took what is not in the journal.
    """

    def __init__(self, journal: Path, graph: str, node: str, sink: str) -> None:
        self._journal, self._graph, self._node, self._sink = journal, graph, node, sink
        self.steps = self._read()

    def values(self, steps: Sequence[RecordedStep]) -> Iterator[tuple[Taken, bytes]]:
        """What some of the steps took, as the codec of the node wrote it. Read as it is asked for.

        Args:
            steps: of these, in order. Only what later ones of them took is held meanwhile.
        """
        needed = {item.made for step in steps for item in step.items}
        made = ((at, record) for at, record in self._records() if isinstance(record, Made) and at in needed)
        held: dict[int, bytes] = {}
        for step in steps:
            for item in step.items:
                while item.made not in held:
                    at, record = next(made)
                    held[at] = record.values[0]
                yield item, held.pop(item.made)

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
                steps.append(RecordedStep(record.number, tuple(self._taken(record, latest))))
            elif steps and steps[-1].number == record.number:
                steps[-1] = RecordedStep(record.number, steps[-1].items, record.digest)
        return steps

    def _records(self) -> Iterator[tuple[int, Made | Step | Digest]]:
        """Those of the sink and of the stage, each with its number in the journal."""
        for at, record in enumerate(read_journal(self._journal)):
            if not isinstance(record, Made | Step | Digest) or record.graph != self._graph:
                continue
            if (record.node == self._node) if isinstance(record, Made) else (record.sink == self._sink):
                yield at, record

    def _taken(self, step: Step, latest: Mapping[tuple[int, ...], int]) -> Iterator[Taken]:
        for path, birth, version in step.items:
            if path not in latest:
                raise LookupError(
                    f"expected what step {step.number} of {self._graph}.{self._sink} took, in {self._journal}, got nothing of "
                    f"{self._node} for {'.'.join(map(str, path))}; only a run that records from its beginning has it"
                )
            yield Taken(birth, None if version is None else step.number - 1 - version, latest[path])

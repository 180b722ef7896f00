"""What became of each task that was drawn, by source, difficulty and reason: nothing that skews a run's tasks stays unseen.

It keeps the tally of a run (``flow.Run(tally=...)``) and knows no graph: a task is drawn once, and ends once, as trained, as
silent (in a step, and nothing of it to train), or given up for a reason, such as ``no_signal``, ``stale`` or
``member failed: timed_out``. So what was drawn is what was trained, plus what ended for each other reason, plus what is
unfinished. A broadcast of tasks or groups makes several ends of one draw; no ready graph has one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from flow import Gathered
from stages.records import Batch, Episode, EpisodeRow, Group, Task

MAX_LABELS = 256
"""Most pairs of source and difficulty told apart; the others are counted as the source ``other``."""
MAX_SOURCES = 8
"""Most sources with counts of their own in the row of a step: the first that were drawn; the others are summed as ``other``."""
TRAINED, SILENT, SKIPPED, TAKEN = "trained", "silent", "update skipped", "taken"
"""Ends at a sink: in an update; in a step, without a target; in a step that was skipped; by a sink that trains nothing."""
OTHER, UNNAMED = "other", "unnamed"

NO_SIGNAL = "no_signal"
"""Why the advantages filter a group; such groups are in no step, so that the trainer cannot count them."""

Label = tuple[str, str | None]
Brief = tuple[int, int, int, int, int]
"""Tasks drawn, trained, silent, lost for whatever reason, and of these without signal."""


class Ends(msgspec.Struct):
    """Counts of one label.

    Attributes:
        source: name of the source.
        difficulty: ``None`` where tasks say none.
        drawn: tasks drawn.
        ends: tasks that came to their end, by how.
        episodes: episodes that ended, failed ones and their retries included, by status.
    """

    source: str
    difficulty: str | None
    drawn: int = 0
    ends: dict[str, int] = {}
    episodes: dict[str, int] = {}


class OutcomesState(msgspec.Struct, frozen=True):
    """What a snapshot keeps of the counts.

    Attributes:
        labels: all counts.
        reported: by source, what the rows of steps have told so far.
        steps: steps completed. One under way is not in any count, and reports again.
    """

    labels: tuple[Ends, ...]
    reported: dict[str, Brief]
    steps: int


class Outcomes:
    """Counts of one run.

    Args:
        on_step: takes a row after each step that is complete and reported: for each source, what was drawn, trained, silent and
            lost (given up for whatever reason) since the row before, and ``no_signal_filtered``, those of all sources that were
            lost since they said nothing; ``None`` for no rows.
        beside: what the names of nodes begin with that are not on the line of what is drawn, as those of an evaluation during
            training, and are left out; ``None`` for none.
    """

    def __init__(self, on_step: Callable[[Mapping[str, int]], None] | None = None, beside: str | None = None) -> None:
        self._on_step, self._beside = on_step, beside
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self._labels: dict[Label, Ends] = {}
        self._reported: dict[str, Brief] = {}
        self._steps = self._rows = 0
        self._latest: list[Ends] = []
        self._skips: set[int] = set()

    def drawn(self, node: str, values: Sequence[Any]) -> None:
        """See ``flow`` on tallies. Values that are no tasks are passed over."""
        for ends in self._of(values):
            ends.drawn += 1

    def ended(self, node: str, values: Sequence[Any], reason: str | None) -> None:
        """See ``flow`` on tallies."""
        if self._beside is not None and node.startswith(self._beside):
            return
        step = reason is None and any(isinstance(value, Batch) for value in values)
        if step:
            self._latest = []
        for value in values:
            for ends in self._of([value]):
                how = self._how(value) if reason is None else reason
                ends.ends[how] = ends.ends.get(how, 0) + 1
                if how == TRAINED:
                    self._latest.append(ends)
        if step:
            self._skips.discard(self._steps)
            self._steps += 1
            self._tell_step(self._steps <= self._rows)

    def stepped(self, skipped: str | None) -> None:
        """The trainer reported a step; all its updates were skipped for a reason, or one was applied (``None``).

        The row comes before the step is complete where the trainer has a thread of its own, and after it where it has none.
        """
        number, self._rows = self._rows, self._rows + 1
        complete = number < self._steps
        if skipped is not None and complete:
            for ends in self._latest:
                ends.ends[TRAINED] -= 1
                ends.ends[SKIPPED] = ends.ends.get(SKIPPED, 0) + 1
        elif skipped is not None:
            self._skips.add(number)
        self._tell_step(complete)

    @property
    def empty(self) -> bool:
        """Whether nothing was counted, as where what is drawn are no tasks."""
        return not self._labels

    def episode(self, episode: Episode) -> None:
        """Count an episode by its status."""
        for ends in self._of([episode]):
            ends.episodes[episode.status.value] = ends.episodes.get(episode.status.value, 0) + 1

    def report(self) -> dict[str, Any]:
        """Drawn and trained by source, each with its difficulties, for a run's summary.

        Shares are of all sources; those of what was drawn leave out what a sink took that trains nothing, as in an evaluation.
        """
        by_source: dict[str, list[Ends]] = {}
        for ends in self._labels.values():
            by_source.setdefault(ends.source, []).append(ends)
        drawn, trained = _totals(self._labels.values())
        told = {}
        for source, parts in by_source.items():
            told[source] = _told(parts, drawn, trained)
            labelled = [part for part in parts if part.difficulty is not None]
            if labelled:
                told[source]["difficulties"] = {str(part.difficulty): _told([part], drawn, trained) for part in labelled}
        return told

    def state(self) -> OutcomesState:
        """All counts."""
        return OutcomesState(_copies(self._labels.values()), dict(self._reported), self._steps)

    def restore(self, state: OutcomesState) -> None:
        """Go on from these counts."""
        self.clear()
        self._labels = {(ends.source, ends.difficulty): ends for ends in _copies(state.labels)}
        self._reported = dict(state.reported)
        self._steps = self._rows = state.steps

    def _how(self, value: Any) -> str:
        if not isinstance(value, Batch):
            return TAKEN
        if not value.units:
            return SILENT
        return SKIPPED if self._steps in self._skips else TRAINED

    def _of(self, values: Sequence[Any]) -> Iterable[Ends]:
        for value in values:
            label = label_of(value)
            if label is None:
                continue
            if label not in self._labels and len(self._labels) >= MAX_LABELS:
                label = (OTHER, None)
            yield self._labels.setdefault(label, Ends(*label))

    def _tell_step(self, known: bool) -> None:
        """Give the row of a step once it is known to be complete and whether its update was applied."""
        if known and self._on_step is not None:
            self._on_step(self._step_row())

    def _step_row(self) -> Mapping[str, int]:
        sources = list(dict.fromkeys(source for source, _ in self._labels))
        own = sources[:MAX_SOURCES]
        now: dict[str, list[int]] = {}
        for ends in self._labels.values():
            counts = now.setdefault(ends.source if ends.source in own else OTHER, [0, 0, 0, 0, 0])
            for place, count in enumerate(_in_brief(ends)):
                counts[place] += count
        row = {"no_signal_filtered": 0}
        for source, counts in now.items():
            before = self._reported.get(source, (0, 0, 0, 0, 0))
            *since, filtered = (count - told for count, told in zip(counts, before, strict=True))
            row |= {f"{name}/{source}": count for name, count in zip(("drawn", TRAINED, SILENT, "lost"), since, strict=True)}
            row["no_signal_filtered"] += filtered
            self._reported[source] = (counts[0], counts[1], counts[2], counts[3], counts[4])
        return row


def label_of(value: Any) -> Label | None:
    """Source and difficulty of a task, or of what was made of it; ``None`` where it does not say."""
    if isinstance(value, Gathered):
        parts = (*value.members, *value.failed)
        return label_of(parts[0]) if parts else None
    if isinstance(value, Group | Batch):
        return label_of(value.episodes[0]) if value.episodes else None
    task = value.task if isinstance(value, Episode) else value
    return (task.source or UNNAMED, task.difficulty) if isinstance(task, Task | EpisodeRow) else None


def _in_brief(ends: Ends) -> Brief:
    trained, silent = ends.ends.get(TRAINED, 0), ends.ends.get(SILENT, 0)
    lost = sum(ends.ends.values()) - trained - silent - ends.ends.get(TAKEN, 0)
    return ends.drawn, trained, silent, lost, ends.ends.get(NO_SIGNAL, 0)


def _totals(labels: Iterable[Ends]) -> tuple[int, int]:
    """Tasks drawn to be trained, and those trained."""
    parts = list(labels)
    return sum(p.drawn - p.ends.get(TAKEN, 0) for p in parts), sum(p.ends.get(TRAINED, 0) for p in parts)


def _told(parts: Sequence[Ends], drawn: int, trained: int) -> dict[str, Any]:
    ends: Counter[str] = Counter()
    episodes: Counter[str] = Counter()
    for part in parts:
        ends.update(part.ends)
        episodes.update(part.episodes)
    drawn_here, trained_here = _totals(parts)
    all_drawn = sum(part.drawn for part in parts)
    return {
        "drawn": all_drawn,
        "drawn_share": drawn_here / drawn if drawn else None,
        "trained": trained_here,
        "trained_share": trained_here / trained if trained else None,
        "ends": {how: count for how, count in ends.items() if count},
        "unfinished": all_drawn - ends.total(),
        "episodes": dict(episodes),
    }


def _copies(labels: Iterable[Ends]) -> tuple[Ends, ...]:
    return tuple(msgspec.structs.replace(ends, ends=dict(ends.ends), episodes=dict(ends.episodes)) for ends in labels)

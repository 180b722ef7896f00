"""How far a program has come: what each commit says of it, and what a resumed program begins from. Plain values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from flow import Plan, Run
from flow.saving import CannotResume, Commit
from graphs.runs.changes import Change
from graphs.runs.folder import Sizes


class Spent(msgspec.Struct, frozen=True):
    """Time of a program, over all its starts. Work that was lost and done again counts once, as it was done again.

    Attributes:
        wall_s: of all.
        at_work_s: of that, seconds in which graphs ran.
        phase_s: of that, of the phase under way.
        lag_max_ms: longest the loop was held up in the phase under way.
    """

    wall_s: float = 0.0
    at_work_s: float = 0.0
    phase_s: float = 0.0
    lag_max_ms: float = 0.0


class Progress(msgspec.Struct, frozen=True):
    """How far a program has come.

    Attributes:
        attempt: number of the start that said so.
        phase: phases that are over; the next one is under way, or about to begin.
        phases: names of all.
        step: steps of the phase under way.
        summary: what the phases that are over put into the summary.
        spent: time.
        sizes: of the files of rows.
        engine_version: of the weights that the engine samples from; ``None`` where there is none.
        versions: what the run depends on beside its settings, see ``versions.py``.
        begun: number of the commit that the phase under way began after, 0 for none; ``None`` where it could not be made.
    """

    attempt: int
    phase: int
    phases: tuple[str, ...]
    step: int
    summary: dict[str, Any]
    spent: Spent
    sizes: Sizes
    engine_version: int | None
    versions: dict[str, Any]
    begun: int | None

    @property
    def completed(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase == len(self.phases)

    @property
    def over(self) -> Sequence[str]:
        """Names of the phases that are over."""
        return self.phases[: self.phase]


@dataclass(frozen=True)
class Start:
    """What a program starts from.

    Attributes:
        commit: to go on from; ``None`` for the beginning.
        progress: what it says; ``None`` for the beginning.
        changes: what was changed since then, all of it accepted.
    """

    commit: Commit | None = None
    progress: Progress | None = None
    changes: Sequence[Change] = ()

    @property
    def phase(self) -> int:
        """Phases that are over."""
        return 0 if self.progress is None else self.progress.phase

    @property
    def spent(self) -> Spent:
        """Time so far."""
        return Spent() if self.progress is None else self.progress.spent

    @property
    def in_graph(self) -> Commit | None:
        """The commit, where a graph was under way."""
        return None if self.commit is None or self.commit.manifest.graph is None else self.commit


BEGINNING = Start()


def steps_done(run: Run) -> int:
    """Steps that the line of a graph has taken, or items that its sink took where it takes none."""
    name = end_of_line(run.plan)
    counts = run.summary().nodes[name]
    return counts.taken if run.plan.spec.nodes[name].collect is None else counts.emitted


def end_of_line(plan: Plan) -> str:
    """The sink that the line of a graph ends in. What is declared after it is beside the line."""
    return next(name for name, node in plan.spec.nodes.items() if node.kind == "sink")


def line_of(plan: Plan) -> Sequence[str]:
    """The nodes of a graph that lead to the end of its line, in order of declaration; a branch beside it is not among them."""
    end = end_of_line(plan)
    inside = {end, *plan.spec.ancestors(end)}
    return [name for name in plan.spec.nodes if name in inside]


def read_progress(commit: Commit) -> Progress:
    """What a commit says of its program.

    Raises:
        CannotResume: something else, as one that was made by a program of one's own.
    """
    try:
        return msgspec.convert(commit.manifest.about, Progress)
    except msgspec.ValidationError as error:
        raise CannotResume(
            f"{commit.folder}: expected what headrace run says of a program, got something else ({error}); go on with what "
            "made it"
        ) from error

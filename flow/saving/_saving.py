"""How one run is saved, and what it goes on from: said by the program, done by the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._commit import Commit
from ._commits import Commits
from ._declared import Resumable
from ._journal import Journal


def _nothing() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Saving:
    """How one run is saved.

    A commit is made after every so many steps of the sink that saves more than its state, or, in a graph without such a sink,
    of each that takes steps; after the last step; and when the run was suspended. One that the disk refuses (``OSError``) is
    told of, and the run goes on: the one before it is as it was. Where that was the last one, it is tried once more at the end,
    and the run ends with ``CommitFailed``. Any other error ends the run at once, as one of a stage does: a value that is not of
    its declared type, say, would make every commit fail.

    Attributes:
        commits: where to; open while the run is.
        beside: what declares a state and is no part of the graph, such as who counts its outcomes, by a name of its own.
        resume: what the run goes on from; ``None`` begins anew.
        about: gives what a commit says of the program, plain values; called on the loop.
        on_failure: told, on the loop, of a commit that could not be made; ``None`` leaves it at a warning in the log. What it
            raises ends the run.
        journal: where what stages make for durable edges is noted, open while the run is, and opened after the commit that the
            run goes on from; ``None`` notes nothing, and after a kill all that came after the latest commit is made again.
        renamed: where ``resume`` was saved by a graph that called things otherwise: the name of now of a node, a cell or the
            graph, by its name of before.
        migrate: where something declares another state now than it did: by its name of now, what makes of the state of before,
            as plain values, the plain values of one of now. It is given ``None`` for what declared no state before, and what it
            gives for one that declares none now is forgotten.
    """

    commits: Commits
    beside: Mapping[str, Resumable] = field(default_factory=dict[str, Resumable])
    resume: Commit | None = None
    about: Callable[[], Mapping[str, Any]] = _nothing
    on_failure: Callable[[Exception], None] | None = None
    journal: Journal | None = None
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    migrate: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict[str, Callable[[Any], Any]])

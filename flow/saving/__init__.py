"""Exact resume: commits of a run on the disk, and what may declare a state that goes into them.

``_declared`` says what a stage can give, ``_image`` writes a moment of the graph, ``_commits`` brings folders onto the disk and
``_commit`` reads them, ``_outline`` compares graphs, ``_journal`` notes what is finished in between, in the ``_records``, and
``_saving`` is how a run is told of all this. The run's own part is ``flow/_keeping.py`` and ``flow/_recalling.py``.
"""

from .._codec import Hooks
from .._errors import CannotResume, CommitFailed, NotResumable
from ._commit import Commit, Manifest, complete, newest
from ._commits import Commits, Draft, link_tree
from ._declared import Digested, Resumable, Saves
from ._image import read_state
from ._journal import Journal, read_journal
from ._outline import Difference, differences, outline
from ._recorded import RecordedStep, RecordedSteps
from ._records import Begun, Cut, Digest, Forgiven, Made, Opened, Record, Step
from ._saving import Saving

__all__ = [
    "Begun",
    "CannotResume",
    "Commit",
    "CommitFailed",
    "Commits",
    "Cut",
    "Difference",
    "Digest",
    "Digested",
    "Draft",
    "Forgiven",
    "Hooks",
    "Journal",
    "Made",
    "Manifest",
    "NotResumable",
    "Opened",
    "Record",
    "RecordedStep",
    "RecordedSteps",
    "Resumable",
    "Saves",
    "Saving",
    "Step",
    "complete",
    "differences",
    "link_tree",
    "newest",
    "outline",
    "read_journal",
    "read_state",
]

"""The commits of one program: those of a graph under way, and those between two. Says what they say of the program.

A commit between two graphs holds the parameters of the model, where something was trained. Those with a graph carry the same
on, as links: what a phase began with is needed again when it is gone on with, for a reference that stays as it was.

What finished between two commits is in the journal of the program, which knows the versions that a training makes. An
evaluation makes none, and its episodes are worth nothing for another model, or with other settings. So it has a journal of its
own, named by these and by the commit it began after, which no other evaluation ever begins after.
"""

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from flow import Plan, Run
from flow.saving import Commit, Commits, Journal, Saving, complete, link_tree
from graphs.program import Phase
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.progress import Progress, Start
from stages.arrays import ARRAYS
from stages.checkpoint.store import load_model, save_model
from stages.models.transformer import Transformer

MODEL = "model"
"""Folder in a commit between two graphs that the model's parameters are in, and in that of ``begun`` beside a graph."""
BEGUN = "begun"
JOURNAL = "journal"
_NOT_MADE = "a commit could not be made"


class BegunWith:
    """The parameters that a phase began with, in each commit of the phase.

    Args:
        model: that has them until the phase is over.
        commits: of the run.
    """

    def __init__(self, model: Transformer, commits: Path) -> None:
        self._model, self._commits = model, commits

    def state(self) -> None:
        """None beside the arrays."""

    def restore(self, state: None) -> None:
        """The model has them before the graph is opened."""

    def save(self, folder: Path) -> Callable[[], None]:
        """See ``flow.saving.Saves``. Nothing is taken now: nobody changes them before the phase is over."""

        def write() -> None:
            there = begun_with_latest(self._commits)
            if there is None:
                save_model(self._model, folder / MODEL)()
            else:
                folder.mkdir()
                link_tree(there, folder / MODEL)

        return write

    def load(self, folder: Path) -> None:
        """They are loaded before the graph is opened."""


def begun_with(commit: Commit) -> Path | None:
    """The folder of a commit that holds the parameters which the phase under way, or the next one, begins with."""
    for name in (MODEL, f"beside {BEGUN}"):
        folder = commit.saved(name)
        if folder is not None:
            return folder if name == MODEL else folder / MODEL
    return None


def begun_with_latest(commits: Path) -> Path | None:
    """The same of the latest commit; ``None`` also where there is none."""
    found = complete(commits)
    return begun_with(found[-1]) if found else None


def load_begun(model: Transformer, commit: Commit) -> None:
    """Fill a model with what the phase of a commit began with; leaves it as it is where nothing was trained before."""
    folder = begun_with(commit)
    if folder is not None:
        load_model(model, folder)


def check_saved(plan: Plan) -> None:
    """Refuse a graph that cannot be saved.

    Raises:
        BuildError: rule B7, all faults at once.
    """
    Run(plan, saving=Saving(Commits(Path(), hooks=ARRAYS)))


class ProgramCommits:
    """Makes the commits of one program. A context manager.

    Args:
        folder: of the run.
        options: how often, and how many are kept.
        start: what the program starts from.
        progress: tells how far it has come; on the loop.
        on_failure: told of what could not be written, in few words, and why.
        settings: what the program was made from, model included, see ``flow.saving.Journal``.

    Attributes:
        begun: number of the commit that the phase under way began after; ``None`` where that could not be made.
    """

    def __init__(
        self,
        folder: RunFolder,
        options: SavingOptions,
        start: Start,
        progress: Callable[[], Progress],
        on_failure: Callable[[str, Exception], None],
        settings: bytes = b"",
    ) -> None:
        self._folder, self._start, self._progress, self._on_failure = folder, start, progress, on_failure
        self._options, self._settings = options, hashlib.blake2b(settings, digest_size=16).hexdigest()
        self._after = 0 if start.commit is None else start.commit.number
        self.begun = self._after if start.in_graph is None or start.progress is None else start.progress.begun
        self._apart: Path | None = None
        every, path = options.checkpoint_every, folder.path / "checkpoints"
        self._commits = None if every is None else Commits(path, every=every, keep=options.keep, hooks=ARRAYS)
        self._journal = self._journal_in(folder.path / JOURNAL, record=options.record)

    def _journal_in(self, folder: Path, *, record: bool = False) -> Journal:
        failed = partial(self._on_failure, "the journal cannot be written up to the next commit")
        return Journal(folder, after=self._after, record=record, settings=self._settings, on_failure=failed)

    def __enter__(self) -> "ProgramCommits":
        self._stack = contextlib.ExitStack()
        if self._commits is not None:
            self._stack.enter_context(self._commits)
            self._stack.enter_context(self._journal)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def saving(self, number: int, phase: Phase, begun: Transformer | None) -> Saving | None:
        """How a phase is saved, and what its graph goes on from; ``None`` where nothing is saved.

        Args:
            number: of the phase, from 0.
            phase: what is to be saved.
            begun: the model, where phases before this one have trained it.
        """
        if self._commits is None or phase.starts_over:
            return None
        beside = {"folder": self._folder}
        if begun is not None:
            beside[BEGUN] = BegunWith(begun, self._commits.folder)
        resume = self._start.in_graph if number == self._start.phase else None
        journal = self._journal_apart(phase.name) if phase.evaluates else self._journal
        failed = partial(self._on_failure, _NOT_MADE)
        return Saving(self._commits, beside, resume, self._about, failed, journal)

    def _journal_apart(self, name: str) -> Journal | None:
        if self.begun is None:
            return None
        self._apart = self._folder.path / JOURNAL / f"{name}-{self.begun:06}-{self._settings[:8]}"
        return self._stack.enter_context(self._journal_in(self._apart))

    async def between(self, trained: Transformer | None, *, same: bool) -> None:
        """Commit between two graphs, or behind the last one. Where that fails the program goes on: the one before is good.

        Args:
            trained: the model, where phases have trained it.
            same: whether it is as the phase that is over began with.
        """
        if self._commits is None:
            return
        try:
            draft = self._commits.begin()
            self._journal.cut(draft.number)
            before = begun_with_latest(self._commits.folder) if same else None
            if trained is None:
                writes = []
            elif before is not None:
                writes = [partial(link_tree, before, draft.folder / MODEL)]
            else:
                writes = [save_model(trained, draft.folder / MODEL)]
            commit = await asyncio.to_thread(self._commits.write, draft, self._about(), writes=writes)
            kept = min((each.number for each in complete(self._commits.folder)), default=commit.number)
            await asyncio.to_thread(self._journal.forget, kept)
        except OSError as error:
            self.begun = None
            self._on_failure(_NOT_MADE, error)
        else:
            self.begun = self._after = commit.number
            if self._apart is not None:
                shutil.rmtree(self._apart, ignore_errors=True)
        self._apart = None

    def _about(self) -> dict[str, object]:
        return msgspec.to_builtins(self._progress())

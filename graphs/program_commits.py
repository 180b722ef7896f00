"""The commits of one program: those of a graph under way, and those between two. Says what they say of the program.

A commit between two graphs holds the parameters of the model, where something was trained. Those with a graph carry the same
on, as links: what a phase began with is needed again when it is gone on with, for a reference that stays as it was.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from flow import Plan, Run
from flow.saving import Commit, Commits, Hooks, Journal, Saving, complete, link_tree
from graphs.options import SavingOptions
from graphs.progress import Progress, Start
from graphs.run_folder import RunFolder
from stages.arrays import read_array, write_array
from stages.checkpoint.store import load_model, save_model
from stages.models.transformer import Transformer

MODEL = "model"
"""Folder in a commit between two graphs that the model's parameters are in, and in that of ``begun`` beside a graph."""
BEGUN = "begun"
_HOOKS = Hooks(write=write_array, read_ext=read_array)
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
    Run(plan, saving=Saving(Commits(Path(), hooks=_HOOKS)))


class ProgramCommits:
    """Makes the commits of one program. A context manager.

    Args:
        folder: of the run.
        options: how often, and how many are kept.
        start: what the program starts from.
        progress: tells how far it has come; on the loop.
        on_failure: told of what could not be written, in few words, and why.
        settings: what the program was made from, see ``flow.saving.Journal``.
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
        every, after = options.checkpoint_every, 0 if start.commit is None else start.commit.number
        path = folder.path / "checkpoints"
        self._commits = None if every is None else Commits(path, every=every, keep=options.keep, hooks=_HOOKS)
        self._journal = Journal(
            folder.path / "journal",
            after=after,
            record=options.record,
            settings=hashlib.blake2b(settings, digest_size=16).hexdigest(),
            on_failure=partial(on_failure, "the journal cannot be written up to the next commit"),
        )

    def __enter__(self) -> "ProgramCommits":
        self._stack = contextlib.ExitStack()
        if self._commits is not None:
            self._stack.enter_context(self._commits)
            self._stack.enter_context(self._journal)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def saving(self, number: int, begun: Transformer | None) -> Saving | None:
        """How a phase is saved, and what its graph goes on from; ``None`` where nothing is saved.

        Args:
            number: of the phase, from 0.
            begun: the model, where phases before this one have trained it.
        """
        if self._commits is None:
            return None
        beside = {"folder": self._folder}
        if begun is not None:
            beside[BEGUN] = BegunWith(begun, self._commits.folder)
        resume = self._start.in_graph if number == self._start.phase else None
        failed = partial(self._on_failure, _NOT_MADE)
        return Saving(self._commits, beside, resume, self._about, failed, self._journal)

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
            self._on_failure(_NOT_MADE, error)

    def _about(self) -> dict[str, object]:
        return msgspec.to_builtins(self._progress())

"""The best weights of a run, on disk from when they are found; a commit holds them by links, and so costs nothing for them.

Layout: ``runs/<name>/best/<version>/parameters``, and beside it ``wins``, an empty file that says that whoever loads the run is
to have these and not the latest. The same lies in the folder of the trainer in each commit, and what lies there is what counts:
what was found after the commit that a run goes on from never was. What is best is for the caller to say.
"""

import shutil
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flow.saving import link_tree
from stages.checkpoint.store import PARAMETERS, WINS, load_arrays, save_arrays, versions

_PART = ".part"


class BestWeights:
    """Keeps the best weights of one run. A context manager, which begins with none.

    Args:
        folder: ``runs/<name>/best``; ``None`` for one that is gone with the run.
    """

    def __init__(self, folder: Path | None) -> None:
        self._asked = folder
        self._lock = threading.Lock()  # a commit may link what was found while better ones are written
        self._pinned: int | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        folder = self._asked or Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-best-")))
        self._folder = folder.absolute()
        self._clear()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def keep(self, version: int, parameters: Any, *, wins: bool) -> None:
        """Write weights; returns when they are on disk. Those before them stay, until there are better ones again.

        The same version may be kept again, as in a run that goes on.

        Args:
            version: not below those kept before.
            parameters: pytree of arrays.
            wins: whether loading the run gives them.

        Raises:
            OSError: they could not be written; the old ones stay.
        """
        folder = self._of(version)
        part = folder.with_name(folder.name + _PART)
        shutil.rmtree(part, ignore_errors=True)
        save_arrays(part / PARAMETERS, parameters)()
        if wins:
            (part / WINS).touch()
        with self._lock:
            shutil.rmtree(folder, ignore_errors=True)
            part.rename(folder)
            for old in versions(self._folder)[:-2]:
                if old != self._pinned:
                    shutil.rmtree(self._of(old), ignore_errors=True)

    def pin(self, version: int | None) -> None:
        """Let a version stay until it was linked, or another is pinned; ``None`` for none."""
        with self._lock:
            self._pinned = version

    def link(self, folder: Path) -> None:
        """Put what is pinned into the folder ``best`` of a commit; nothing where nothing is.

        Raises:
            OSError: it cannot be put there.
        """
        with self._lock:
            if self._pinned is not None:
                link_tree(self._of(self._pinned), folder / self._of(self._pinned).name)

    def take_over(self, folder: Path) -> None:
        """Have what lies in the folder ``best`` of a commit, and nothing else."""
        self._clear()
        for version in versions(folder):
            link_tree(folder / f"{version:06}", self._of(version))

    def load(self, version: int, like: Any) -> Any:
        """Read weights, in the layout of these, or of their shapes.

        Raises:
            FileNotFoundError: they were not kept.
        """
        return load_arrays(self._of(version) / PARAMETERS, like)

    def _of(self, version: int) -> Path:
        return self._folder / f"{version:06}"

    def _clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

"""The best weights of a run, beside its steps: one set, that the retention of steps never touches.

Layout: ``<checkpoints>/best/<version>/...``, as ``store.py`` lays out a step, and ``best/wins``, an empty file that says that
whoever loads the run is to have these and not the last step. What is best is for the caller to say.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stages.checkpoint.store import BEST, WINS, CheckpointStore


class BestStore:
    """Keeps the best weights of one run. A context manager.

    Args:
        checkpoints: folder of the run's steps.
    """

    def __init__(self, checkpoints: Path | str) -> None:
        self._store = CheckpointStore(Path(checkpoints) / BEST, keep=1)

    def __enter__(self) -> Self:
        self._store.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._store.close()

    def save(self, version: int, parameters: Any, *, wins: bool) -> None:
        """Keep these instead of what was kept. Returns when they are on disk; until then the old ones are.

        Args:
            version: above all that were kept before.
            parameters: pytree of arrays.
            wins: whether loading the run gives them.

        Raises:
            OSError: they could not be written; the old ones stay.
        """
        self._store.save(version, parameters)
        self._store.wait()
        if wins:
            (self._store.folder / WINS).touch()

    def restore(self, parameters: Any) -> Any:
        """Read them, in the layout of these, or of their shapes.

        Raises:
            FileNotFoundError: nothing was kept.
        """
        return self._store.restore(parameters).parameters

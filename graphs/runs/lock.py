"""The lock of a run's folder: one process writes there. Held by the kernel, so that no kill leaves it behind."""

import contextlib
import fcntl
from collections.abc import Generator
from pathlib import Path

LOCK = "lock"


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the lock of a folder.

    Raises:
        BlockingIOError: another process holds it.
    """
    with (folder / LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BlockingIOError(
                f"expected a run that nobody is at, got one that another process works on, in {folder}; wait for its end, or "
                "end it",
            ) from error
        yield

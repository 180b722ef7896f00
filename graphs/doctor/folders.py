"""The folder of runs and that of compiled programs: whether they can be written, locked and renamed in, and what is free."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue

from graphs.commands.compiled import compiled_folder
from graphs.doctor.finding import Finding

LEAST_FREE, LITTLE_FREE = 100 * 2**20, 5 * 2**30
"""A trace and a commit of the smallest model; two commits of a model of half a billion parameters with its optimizer."""
MOST_SKEW_S = 5.0


def find_runs(folder: Path) -> Finding:
    """What runs do in their folder is done there: a file is locked, written to the disk and renamed.

    Args:
        folder: of all runs; it need not be there yet.
    """
    there = _nearest(folder)
    free = shutil.disk_usage(there).free
    values = {"folder": str(folder.absolute()), "free_bytes": free}
    shown = f"'{folder.absolute()}'" + ("" if folder.exists() else " (to be made)")
    problem, skew = _tried(there)
    if problem:
        found = f"expected a folder that can be written, locked and renamed in, got {shown}: {problem}"
        return Finding("runs folder", "fault", found, "name another: --options.folder FOLDER", values)
    told = f"{shown}, {free / 2**30:.1f} GiB free"
    if free < LITTLE_FREE:
        level = "fault" if free < LEAST_FREE else "warning"
        return Finding("runs folder", level, f"expected {LITTLE_FREE // 2**30} GiB free for commits and traces, got {told}",
                       "free some, or name another: --options.folder FOLDER", values)  # fmt: skip
    if abs(skew) > MOST_SKEW_S:
        return Finding("runs folder", "warning", f"{told}; its clock is {skew:+.0f} s from this machine's",
                       "synchronise the two, or ages of files will be wrong", values)  # fmt: skip
    return Finding("runs folder", "ok", told, values=values)


def find_compiled(environment: Mapping[str, str] = os.environ) -> Finding:
    """The cache of compiled programs; without it each start of a large model compiles for minutes."""
    told = environment.get("JAX_COMPILATION_CACHE_DIR", "")
    if "://" in told:
        return Finding("compiled", "ok", f"kept in {told}, which was not looked at", values={"folder": told})
    folder = compiled_folder(environment)
    if folder is None:
        return Finding("compiled", "warning", "kept nowhere: JAX_ENABLE_COMPILATION_CACHE is off, so that every start compiles",
                       "unset JAX_ENABLE_COMPILATION_CACHE")  # fmt: skip
    problem, _ = _tried(_nearest(folder))
    if problem:
        found = f"expected a folder to keep compiled programs in, got '{folder}': {problem}; every start compiles"
        return Finding("compiled", "warning", found, "name another: export JAX_COMPILATION_CACHE_DIR=FOLDER")
    sizes = list(_sizes(folder))
    values = {"folder": str(folder), "files": len(sizes), "bytes": sum(sizes)}
    return Finding("compiled", "ok", f"{len(sizes)} files, {sum(sizes) / 2**20:.0f} MiB in '{folder}'", values=values)


def within(what: str, look: Callable[[], Finding], within_s: float) -> Finding:
    """Look at a folder in a thread that is left to itself where it takes too long: a dead mount answers never.

    Args:
        what: name of the finding.
        look: makes it.
        within_s: most seconds for it.
    """
    found: SimpleQueue[Finding] = SimpleQueue()
    threading.Thread(target=lambda: found.put(look()), daemon=True).start()
    try:
        return found.get(timeout=within_s)
    except Empty:
        told = f"expected an answer of the file system, got none within {within_s:g} s"
        return Finding(what, "fault", told, "its mount may be dead: name a folder elsewhere")


def _sizes(folder: Path) -> Iterator[int]:
    """Of its files; runs may add and remove some meanwhile."""
    for entry in os.scandir(folder) if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            yield entry.stat().st_size


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def _tried(folder: Path) -> tuple[str, float]:
    """What went wrong, empty for nothing, and how far the folder's clock is ahead, in seconds."""
    try:
        with tempfile.TemporaryDirectory(prefix=".headrace-doctor-", dir=folder) as place:
            file = Path(place) / "tried"
            with file.open("wb") as written:
                fcntl.flock(written, fcntl.LOCK_EX | fcntl.LOCK_NB)
                written.write(b"tried" * 1000)
                written.flush()
                os.fsync(written.fileno())
            renamed = file.rename(file.with_suffix(".renamed"))
            return "", renamed.stat().st_mtime - time.time()
    except OSError as error:
        return error.strerror or type(error).__name__, 0.0

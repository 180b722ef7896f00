"""What a process that is gone has left behind: processes that it started, and files. Linux only; looks, and ends nothing."""

import time
from pathlib import Path

MARK = "HEADRACE_BENCH_RECOVERY"
"""Variable whose value each process has that one of the experiment started: the folder where that ran."""
GONE_S = 10.0
"""Most seconds that what was started may take to end after who started it was killed."""


def children_of(folder: Path) -> list[int]:
    """Ids of processes that were started by one that ran in a folder, and are not over."""
    mark = f"{MARK}={folder}".encode()
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            marked = mark in (process / "environ").read_bytes().split(b"\0")
            over = (process / "stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
        except OSError:  # it has ended meanwhile, or is somebody else's
            continue
        if marked and not over:
            found.append(int(process.name))
    return found


def left_of(folder: Path) -> tuple[list[int], float]:
    """Processes that are left of one that has ended, and the seconds until none was, or until nobody waited longer."""
    began = time.monotonic()
    while (left := children_of(folder)) and time.monotonic() - began < GONE_S:
        time.sleep(0.01)
    return left, time.monotonic() - began


def files_in(folder: Path) -> list[str]:
    """Names of the files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def partial_in(run: Path) -> list[str]:
    """What a run has half written: parts of commits and of files that were to be renamed."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.name.endswith((".part", ".old")))

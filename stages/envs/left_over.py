"""What outlives an environment that was closed: threads, processes and open files of this process.

Processes and files are seen on Linux only. Called by ``check_env``.
"""

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

_PATIENCE_S = 0.5
"""What was told to end takes a moment to be gone."""


class Held(NamedTuple):
    """What this process holds."""

    threads: frozenset[int]
    processes: frozenset[int]
    files: frozenset[str]


def held_now() -> Held:
    """What this process holds now. A process that is dead and not yet reaped counts: nobody waited for it."""
    threads = frozenset(thread.ident or 0 for thread in threading.enumerate())
    return Held(threads, frozenset(_children()), frozenset(_files()))


def left_over(before: Held) -> str | None:
    """What came since and does not go away within half a second, in one line; ``None`` for nothing."""
    give_up_s = time.monotonic() + _PATIENCE_S
    while (left := _told(before, held_now())) is not None and time.monotonic() < give_up_s:
        time.sleep(0.01)
    return left


def _told(before: Held, now: Held) -> str | None:
    found = [
        f"{len(added)} {kind}{'' if kind == 'open files' else ' that run'}"
        for kind, added in (
            ("threads", now.threads - before.threads),
            ("processes", now.processes - before.processes),
            ("open files", now.files - before.files),
        )
        if added
    ]
    return ", ".join(found) or None


def _children() -> set[int]:
    tasks = Path("/proc/self/task")
    while (tasks / str(threading.get_native_id()) / "children").exists():
        try:
            return {int(process) for task in tasks.iterdir() for process in (task / "children").read_text().split()}
        except OSError:  # a thread ended while its list was to be read: another one has its children now
            continue
    return set()


def _files() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            found.append(f"{entry.name} {os.readlink(entry)}")
        except OSError:  # the one that listed the folder
            continue
    return [name for name in found if "/proc/" not in name]

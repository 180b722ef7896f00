"""Scratch folders of sandboxes, and the end of what was left behind in them.

A folder's name says which process made it, and every program of the sandbox has that name in its environment. So the folder is
the record by which a later run finds what a killed one has left: processes first, then files.
"""

import contextlib
import functools
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

MARK = "HEADRACE_SANDBOX"
"""Variable that holds the name of the folder, in the environment of each process of a sandbox."""
_MOST_ROUNDS = 20


def new_folder() -> Path:
    """Make a folder of one's own. The first time in a process, what dead ones have left is ended and removed.

    Raises:
        PermissionError: the folder of all sandboxes belongs to somebody else.
    """
    root = Path(tempfile.gettempdir()) / f"headrace-sandboxes-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        raise PermissionError(f"expected a folder of our own; got one of another user, at {root}; remove it, or set TMPDIR")
    _reap_once(root)
    folder = root / f"{os.getpid()}-{_started(os.getpid())}-{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    return folder


@functools.cache
def _reap_once(root: Path) -> None:
    reap(root)


def reap(root: Path) -> None:
    """End the processes and remove the folders of sandboxes whose maker is dead."""
    for folder in list(root.iterdir()):
        pid, _, rest = folder.name.partition("-")
        if pid.isdigit() and str(_started(int(pid))) != rest.partition("-")[0]:
            kill_marked(folder.name)
            remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder, whatever a program did to its permissions and however deep it built. Harmless where it is gone."""
    with contextlib.suppress(FileNotFoundError):
        folder.chmod(0o700)
        # Folders are moved up and emptied there: no path gets longer than any library or the kernel takes.
        while entries := list(os.scandir(folder)):
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _flatten(entry.path, folder)
                else:
                    os.unlink(entry.path)
        folder.rmdir()


def _flatten(path: str, top: Path) -> None:
    os.chmod(path, 0o700)
    for entry in list(os.scandir(path)):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)  # a folder that is moved has its own entry for its parent changed
            os.rename(entry.path, top / secrets.token_hex(16))
        else:
            os.unlink(entry.path)
    os.rmdir(path)


def kill_marked(name: str) -> None:
    """Kill all processes of a sandbox, and those they start meanwhile."""
    for _ in range(_MOST_ROUNDS):
        found = list(_marked(name))
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _marked(name: str) -> Iterator[int]:
    mark = f"{MARK}={name}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes().split(b"\0"):
                yield int(entry.parent.name)


def _started(pid: int) -> int:
    """When a process was started, in the kernel's own unit; 0 where there is none. Tells it from a later one of its number."""
    try:
        # After the name, which may hold blanks and brackets, the start is the twentieth field.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0

"""Processes under way, from the outside: started, killed, waited for, and what they wrote down of themselves.

What they run is a script that calls ``serve``, see ``_forks.py``. Unlike those of ``killed`` these are real processes and
signals, in real time.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_S = 60.0


@dataclass(frozen=True)
class Process:
    """A process under way.

    Attributes:
        pid: its id.
        folder: where it runs, and where those before it ran that it goes on from.
        wait: waits for its end; gives the status, below 0 for the signal that ended it.
    """

    pid: int
    folder: Path
    wait: Callable[[], int]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal. It may be over, as long as nobody waited for its end."""
        os.kill(self.pid, number)

    def wait_point(self, point: str, nth: int = 1) -> None:
        """Wait until it, and those before it, have reached a point so often."""
        self.wait_for(lambda: self.points.count(point) >= nth, f"{point} for the {nth}. time")

    def wait_for(self, seen: Callable[[], bool], what: str) -> None:
        """Wait until something is seen of it.

        Raises:
            TimeoutError: it was not, within a minute.
        """
        until = time.monotonic() + MOST_S
        while not seen():
            if time.monotonic() > until:
                raise TimeoutError(f"expected {what} within {MOST_S:g} s, got: {self.output}")
            time.sleep(0.002)

    @property
    def output(self) -> str:
        """All that it and those before it said."""
        return (self.folder / "output").read_text()

    @property
    def points(self) -> list[str]:
        """Points that it and those before it reached."""
        path = self.folder / "points"
        return path.read_text().splitlines() if path.exists() else []

    def told(self, word: str) -> list[str]:
        """What it and those before it wrote with ``appended(word, ...)``, a line each, without the word."""
        path = self.folder / "executions"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


Start = Callable[..., Process]
"""``start(folder, *arguments, die=(point, nth), halt=(point, nth), most_bytes=n)`` starts a process in a folder, which may hold
what others left there. Without arguments it gets the usual ones. It dies of SIGKILL, or halts, at the nth pass of a point; no
file of it grows beyond ``most_bytes``."""


@contextlib.contextmanager
def processes(script: Sequence[str], usual: Sequence[str] = (), **environment: str) -> Generator[Start]:
    """Have a script ready to start processes.

    Args:
        script: what Python is started with: a path, or ``-m`` and a module. It calls ``flow.testing.serve``.
        usual: arguments of a process that is given none.
        environment: variables that differ from those here.
    """
    command = [sys.executable, "-W", "ignore", *script]
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forks:

        def ask(what: Any) -> int:
            assert forks.stdin is not None
            assert forks.stdout is not None
            forks.stdin.write(json.dumps(what) + "\n")
            forks.stdin.flush()
            return int(forks.stdout.readline())

        def start(folder: Path, *arguments: str, **more: Any) -> Process:
            folder.mkdir(exist_ok=True)
            pid = ask({"cwd": str(folder), "arguments": arguments or usual, **more})
            return Process(pid, folder, lambda: ask(pid))

        yield start


def points_of(process: Process) -> list[tuple[str, int]]:
    """Each point that a run reached, with its number among those of its name."""
    counts: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    for point in process.points:
        counts[point] += 1
        found.append((point, counts[point]))
    return found

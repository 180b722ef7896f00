"""Processes under way, from the outside: started, killed, waited for, and what they wrote down of themselves."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
MOST_S = 60.0


@dataclass(frozen=True)
class Life:
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
        """Wait until something is seen of it."""
        until = time.monotonic() + MOST_S
        while not seen():
            assert time.monotonic() < until, f"expected {what} within {MOST_S:g} s, got: {self.output}"
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
        """Lines of ``executions`` with this word, without it."""
        path = self.folder / "executions"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]

    @property
    def trained(self) -> list[str]:
        """What each step trained: of a step that came several times, since kills undid it, the latest."""
        steps = dict(line.split(" ", 1) for line in self.told("trained"))
        return [f"{step} {steps[step]}" for step in sorted(steps, key=int)]

    @property
    def executed_twice(self) -> dict[str, int]:
        """Executions, by task, member, retry and attempt, that there were more than one of."""
        return {name: count for name, count in Counter(self.told("begun")).items() if count > 1}

    def made_again(self, after: str, of: str = "") -> list[str]:
        """Executions begun although such a word had been told of an earlier attempt; of those whose names begin so."""
        ended: set[str] = set()
        again: list[str] = []
        lines = (self.folder / "executions").read_text().splitlines()
        for word, _, name in (line.partition(" ") for line in lines):
            item = name.rsplit(" ", 1)[0]
            if word == after:
                ended.add(item)
            elif word == "begun" and item in ended and name.startswith(of):
                again.append(name)
        return again


Start = Callable[..., Life]
"""``start(folder, *arguments, die=(point, nth), halt=(point, nth), most_bytes=n)``; without arguments the usual ones."""


@contextlib.contextmanager
def lives(script: str, usual: Sequence[str]) -> Iterator[Start]:
    """Have a script beside this file ready to start processes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name(script))]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forks:

        def ask(what: Any) -> int:
            assert forks.stdin is not None
            assert forks.stdout is not None
            forks.stdin.write(json.dumps(what) + "\n")
            forks.stdin.flush()
            return int(forks.stdout.readline())

        def start(folder: Path, *arguments: str, **more: Any) -> Life:
            folder.mkdir(exist_ok=True)
            pid = ask({"cwd": str(folder), "arguments": arguments or usual, **more})
            return Life(pid, folder, lambda: ask(pid))

        yield start


def points_of(life: Life) -> list[tuple[str, int]]:
    """Each point that a run reached, with its number among those of its name."""
    counts: Counter[str] = Counter()
    found: list[tuple[str, int]] = []
    for point in life.points:
        counts[point] += 1
        found.append((point, counts[point]))
    return found

"""Runs a system in a process of its own: what it told, how it ended, and the most memory that its processes took together."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

EVERY_S = 0.1
"""Between two looks at the memory."""


@dataclass(frozen=True)
class Ended:
    """A process that is over.

    Attributes:
        events: that it told.
        spawned: when it was started, on the clock of the events.
        code: exit status; minus the signal that killed it; ``None`` where it hung and was ended.
        peak_bytes: most resident memory of it and its children.
        tail: last lines of what it printed.
    """

    events: Sequence[Mapping[str, Any]]
    spawned: float
    code: int | None
    peak_bytes: int
    tail: str


def run(command: Sequence[str | Path], events: Path, log: Path, timeout_s: float, environment: Mapping[str, str]) -> Ended:
    """Wait for it, and end it where it takes too long.

    Args:
        command: program and arguments.
        events: the file that it writes them to.
        log: file of what it prints.
        timeout_s: seconds that it may take.
        environment: variables beside those of this process.
    """
    events.unlink(missing_ok=True)
    spawned, peak = time.monotonic(), 0
    with log.open("w") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**_own(), **environment},
            start_new_session=True,
        )
    try:
        while (code := process.poll()) is None and time.monotonic() < spawned + timeout_s:
            peak = max(peak, memory_of(process.pid))
            time.sleep(EVERY_S)
    finally:
        if process.poll() is None:
            _kill(process)
    told = events.read_text().splitlines() if events.exists() else []
    return Ended([json.loads(line) for line in told if line.endswith("}")], spawned, code, peak, _tail(log))


def memory_of(pid: int) -> int:
    """Resident bytes of a process and its children; 0 for one that is gone."""
    total = 0
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    except psutil.Error:
        pass
    return total


def _own() -> dict[str, str]:
    """What a system gets to see of this environment: no compiled programs of others, and no path into this project."""
    left_out = ("PYTHONPATH", "JAX_", "XLA_", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It and its children."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        family = []
    for child in family:
        child.kill()
    process.kill()
    process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])

"""A system that is measured in a process of its own: this end asks, the other one answers the workload and tells the time.

A line to the script's standard input asks for one round; a line of JSON on its standard output is the answer, the first one
once it is warm. Between rounds it waits and costs nothing, so systems can take turns. Only the standard library: the other end
runs in the peers' environment.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """One round of the workload."""

    seconds: float
    """From the first request to the last token."""
    replies: list[list[int]]
    """Token ids of each request, in the order of the workload."""
    processor_s: float
    """Of all threads of the system's process."""
    notes: dict[str, float]
    """What else the system tells."""


def answer(run: Callable[[], Measured]) -> None:
    """The script's end: one round for each line that comes in. Called when warm."""
    print(json.dumps("warm"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run()._asdict()), flush=True)


class Script:
    """The bench's end, a context manager.

    Args:
        command: the program with its arguments.
        log: where its standard error goes.
    """

    def __init__(self, command: list[str | Path], log: Path):
        self._command, self._log = [str(part) for part in command], log

    def __enter__(self) -> "Script":
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdin=-1, stdout=-1, stderr=log, text=True)
        self._read()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._process.communicate()

    def measure(self) -> Measured:
        """One round.

        Raises:
            RuntimeError: the script ended.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("round\n")
        self._process.stdin.flush()
        return Measured(**self._read())

    def _read(self) -> Any:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise RuntimeError(
            f"expected an answer of {self._command[1]}, got none; see {self._log}:\n{self._log.read_text()[-2000:]}"
        )

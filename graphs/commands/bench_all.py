"""``headrace bench all``: each experiment in a process of its own, one after another, so that one that dies takes none with it.

They show their own progress and findings. How many devices JAX has, and how they are laid out, is up to each of them.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from graphs.bench import shown
from graphs.bench.kept import file_of, read_kept
from graphs.report.tables import clock

_START = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from graphs.entry import main; main()"
"""The paths of this process, so that it is this headrace, wherever it was started from."""
_INTERRUPTED_S, _TERMINATED_S = 10.0, 5.0
"""What a process gets to come to its end after an interrupt, and then after SIGTERM."""


@dataclass(frozen=True)
class Done:
    """What came of an experiment.

    Attributes:
        name: of it.
        holds: whether all its claims held.
        told: the same in words.
        seconds: of its process, start included.
    """

    name: str
    holds: bool
    told: str
    seconds: float


def measure_all(names: Sequence[str], folder: Path, options: Sequence[str], say: Callable[[str], object]) -> bool:
    """Measure one after another, whatever comes of each, and sum up.

    Args:
        names: of experiments.
        folder: that findings are kept in.
        options: for each.
        say: prints a line.

    Returns:
        Whether each kept its findings, and every claim held.
    """
    done: list[Done] = []
    for at, name in enumerate(names, 1):
        say(f"== {at} of {len(names)}: {name} ==")
        done.append(_measure(name, folder, options))
        say("")
    say("== all ==")
    for each in done:
        say(f"{'holds' if each.holds else 'does not':<10}{each.name:<14}{clock(each.seconds):>9}  {each.told}")
    return all(each.holds for each in done)


def here() -> Sequence[str]:
    """Starts this headrace."""
    return sys.executable, "-c", _START, json.dumps(sys.path)


def _measure(name: str, folder: Path, options: Sequence[str]) -> Done:
    file = file_of(folder, name)
    before, began = _written(file), time.monotonic()
    status = _ended([*here(), "bench", name, "--out", str(folder), *options])
    seconds = time.monotonic() - began
    if _written(file) == before:
        how = f"status {status}" if status >= 0 else f"signal {-status}"
        return Done(name, False, f"ended with {how} and kept nothing", seconds)
    kept = read_kept(file)
    return Done(name, kept.holds, shown.counted(kept.findings.claims), seconds)


def _written(file: Path) -> tuple[int, int] | None:
    """What changes each time a file is put in the place of another; ``None`` where there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _ended(command: Sequence[str]) -> int:
    """Run a process to its end. Whoever ends this one ends it too.

    It is in a group of its own, so that an interrupt at a terminal reaches it once, through this process.
    """
    sys.stdout.flush()
    with _ended_as_interrupted(), subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0) as process:
        try:
            return process.wait()
        except BaseException:
            _end(process)
            raise


def _end(process: "subprocess.Popen[bytes]") -> None:
    for number, within_s in ((signal.SIGINT, _INTERRUPTED_S), (signal.SIGTERM, _TERMINATED_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            if number == signal.SIGINT:
                process.send_signal(number)
            else:
                os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(within_s)
            return


@contextmanager
def _ended_as_interrupted() -> Generator[None]:
    """What ends this process, or the terminal that goes away, is taken as an interrupt."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

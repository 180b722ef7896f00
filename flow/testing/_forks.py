"""Processes that may be killed, forked from one that has imported all that they need: saves each the seconds of imports.

The inside: a script calls ``serve`` with its program, and is started by ``processes`` (``_lives.py``). What forks may import,
and has started no thread of its own and nothing of JAX's.
"""

import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..saving import _points

LONGEST_S = 120
"""Life of a process that hangs."""
_EXECUTIONS: list[int] = []
"""The file, once it is open."""


@dataclass(frozen=True)
class Request:
    """A process to be started.

    Attributes:
        cwd: its folder. All that it says goes to ``output`` in it, what ``appended`` is given to ``executions``, and the points
            that it reaches to ``points``.
        arguments: of its program.
        die: point to die at by SIGKILL, and when it is reached for the how manieth time.
        halt: the same for SIGSTOP.
        most_bytes: size that no file of it may exceed; ``None`` for any.
    """

    cwd: str
    arguments: list[str]
    die: tuple[str, int] | None = None
    halt: tuple[str, int] | None = None
    most_bytes: int | None = None


def appended(*words: object) -> None:
    """Write a line of what happens in a process, by one ``write``, so that no kill tears it; see ``Process.told``."""
    os.write(_EXECUTIONS[0], (" ".join(map(str, words)) + "\n").encode())


def serve(program: Callable[[list[str]], None]) -> None:
    """Be the script that ``processes`` starts: have the program run in a process for each request, until there are no more.

    Requests come on standard input, a line each. For one as JSON a process is forked and its id told; for an id, the process is
    waited for and its status told.

    Args:
        program: takes the arguments of a process, and is run in it.
    """
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, int):
            _, status = os.waitpid(asked, 0)
            answer = os.waitstatus_to_exitcode(status)
        elif (answer := os.fork()) == 0:
            _live(Request(**asked), program)
            return
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def reach(point: str) -> None:
    """The program is at a point of its own, at which a process can be asked to die, as at those of saving."""
    _points.reach(point)


def _live(request: Request, program: Callable[[list[str]], None]) -> None:
    os.chdir(request.cwd)
    signal.alarm(LONGEST_S)
    output = _opened("output")
    for number in (0, 1, 2):
        os.dup2(output, number)
    _EXECUTIONS.append(_opened("executions"))
    _watch_points({signal.SIGKILL: request.die, signal.SIGSTOP: request.halt})
    if request.most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request.most_bytes, resource.RLIM_INFINITY))
    program(request.arguments)


def _opened(name: str) -> int:
    return os.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)


def _watch_points(signals: Mapping[signal.Signals, tuple[str, int] | None]) -> None:
    """Write down each point that is reached, and send oneself a signal at some."""
    points, counts = _opened("points"), Counter[str]()

    def listen(reached: str) -> None:
        counts[reached] += 1
        os.write(points, f"{reached}\n".encode())
        for number, at in signals.items():
            if at is not None and (reached, counts[reached]) == tuple(at):
                os.kill(os.getpid(), number)

    _points.listeners.append(listen)

"""An environment in a process of its own: what crashes, hangs or leaves children there harms nobody here.

Not a pool: starting one takes the better part of a second, so give an ``EnvPool`` of them to the episode stage. The process is
spawned, never forked, and leads a process group; closing it kills the group. It ends, with its group, when this process does.
The child's side is ``process_child.py``. Tools there have the permits, the size of text in tokens and the audit log of the run,
and what is shown there with ``flow.span`` and its kin is in its trace.
"""

import asyncio
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from flow.by_path import loaded_by_path
from flow.elsewhere import Hearer, Shown
from stages.cancellation import to_the_end
from stages.envs.context_desk import ASIDE, ContextDesk, Terms
from stages.envs.environment import Opening, Reply
from stages.envs.home_thread import HomeThread
from stages.envs.housed import MakeEnv
from stages.envs.process_child import serve
from stages.records import Message, Task

_ONE_AT_A_TIME = threading.Lock()
"""Starting a process looks after all that have ended, and two threads must not look after one."""


class ProcessEndedError(RuntimeError):
    """The environment's process ended in the middle of a call."""


class ProcessEnv:
    """An ``Environment`` whose methods run in a spawned process."""

    def __init__(self, make: MakeEnv, *, grace_s: float = 5.0):
        """Start nothing yet.

        Args:
            make: makes the environment, in the process, at the first reset; a later reset finds it there. It must be
                importable: a function of a module, or ``functools.partial`` of one; a file that was loaded by its path, as
                the command line does, is loaded there by its path too.
            grace_s: most seconds that closing waits for the environment to close itself, before its process is killed.

        Raises:
            TypeError: a process could not find ``make``.
        """
        self._pickled = pickle.dumps(importable(make))
        self._grace_s = grace_s
        self._thread = HomeThread()
        self._process: Any = None
        self._connection: Any = None
        self._busy = self._stopped = False
        self._calls = itertools.count()

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``. Starts the process where there is none.

        Raises:
            ProcessEndedError: it ended meanwhile.
        """
        return await self._ask("reset", task, key)

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``.

        Raises:
            ProcessEndedError: it ended meanwhile.
        """
        return await self._ask("step", message)

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``.

        Raises:
            ProcessEndedError: it ended meanwhile.
        """
        return await self._ask("score")

    async def close(self) -> None:
        """Close the environment, then kill what is left of its process group. Where a call was cut short, kill at once."""
        self._stopped = True
        if self._busy:
            self._kill()
        hearer, loop = Hearer(next(self._calls)), asyncio.get_running_loop()

        def hear(shown: Shown) -> None:
            with suppress(RuntimeError):  # the loop was closed over an end that nobody waited for
                loop.call_soon_threadsafe(hearer.hear, shown)

        try:
            await self._thread.finish(partial(self._end, Terms(heard=hearer.call), hear))
        finally:
            hearer.end()
            self._thread.shutdown()
        await self._thread.ended()

    async def _ask(self, method: str, *args: Any) -> Any:
        self._busy = True
        desk = ContextDesk(self._say, next(self._calls))
        try:
            outcome, value = await self._thread.call(self._exchange, method, args, desk)
        finally:
            await to_the_end(desk.close())
        self._busy = False
        if outcome == "raised":
            raise value
        return value

    def _say(self, message: tuple[Any, ...]) -> None:
        self._connection.send(message)

    # --- in the thread ---

    def _exchange(self, method: str, args: tuple[Any, ...], desk: ContextDesk) -> tuple[str, Any]:
        if self._process is None:
            self._start()
        if self._stopped:
            raise ProcessEndedError("expected an open environment; got one that is being closed, in ProcessEnv; make another")
        try:
            self._connection.send((method, args, desk.terms))
            while (message := self._connection.recv())[0] in ASIDE:
                desk.hear(message)
            return message
        except (EOFError, ConnectionError) as error:
            code = self._bury()
            raise ProcessEndedError(
                f"expected an answer; got the end of the environment's process, exit code {code}, in {method}"
            ) from error

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        files = loaded_by_path(self._pickled)
        # A daemon: the interpreter ends it at its exit, and does not wait for it.
        process = spawn.Process(target=serve, args=(theirs, self._pickled, files), name="headrace-environment", daemon=True)
        try:
            with _ONE_AT_A_TIME:
                process.start()
        finally:
            theirs.close()
        self._process = process

    def _end(self, terms: Terms, hear: Callable[[Shown], None]) -> None:
        if self._process is None:
            return
        if not self._busy:
            self._close_there(terms, hear)
        self._bury()

    def _bury(self) -> int | None:
        """Kill the group and reap the process; its exit code."""
        wait([self._process.sentinel], 0.0 if self._stopped else self._grace_s)  # tells its own exit code from our kill
        self._kill()
        process, self._process = self._process, None
        with _ONE_AT_A_TIME:
            process.join()
            code = process.exitcode
            process.close()
        self._connection.close()
        return code

    def _close_there(self, terms: Terms, hear: Callable[[Shown], None]) -> None:
        """Have the environment close itself; a process that does not get to it is killed in any case."""
        with suppress(EOFError, ConnectionError):
            self._connection.send(("close", (), terms))
            while self._connection.poll(self._grace_s) and (message := self._connection.recv())[0] in ASIDE:
                if message[0] == "shows":
                    hear(message[1])  # the rest is of a call that outlived its step: nobody serves it any more

    def _kill(self) -> None:
        """Kill the group. Its number is not given away as long as it has a member."""
        process = self._process
        if process is None:
            return
        # Before the child has made its group there is none; then it has no children either. A closed one is dead.
        with suppress(ProcessLookupError, ValueError):
            process.kill()
            os.killpg(process.pid, signal.SIGKILL)


def in_process(make: MakeEnv, *, grace_s: float = 5.0) -> Callable[[Task], ProcessEnv]:
    """What makes environments in processes.

    Args:
        make: see ``ProcessEnv``.
        grace_s: see ``ProcessEnv``.

    Raises:
        TypeError: see ``ProcessEnv``.
    """
    importable(make)
    return lambda task: ProcessEnv(make, grace_s=grace_s)


def importable(make: MakeEnv) -> MakeEnv:
    """The function, where a process can find it.

    Raises:
        TypeError: it cannot.
    """
    try:
        pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"expected a function that a process can import, got {make!r}, in ProcessEnv; define it at the top of a module, or "
            f"use functools.partial of one that is ({error})"
        ) from error
    return make

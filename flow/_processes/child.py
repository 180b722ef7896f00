"""One process of a node, seen from the run: started once, one call at a time, ended for good.

It ends by itself, or told to, or killed; whichever it is, ``gone`` tells, and nothing of it is left then: no program that its
stage started (it leads a process group of its own), no socket, no permit.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio.subprocess import Process
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .._codec import Codec
from .._context import Context
from .._errors import WorkerDied
from .._park import outlast
from ..by_path import loaded_by_path
from .clerk import Clerk
from .codec import unpack_outcome
from .errors import unpack
from .frames import Frame
from .link import Link
from .main_module import describe_main
from .messages import (
    GRACE_S,
    Call,
    Cancel,
    Close,
    Done,
    Ended,
    Message,
    Raised,
    Ready,
    Setup,
    decode_from_child,
    encode,
)  # fmt: skip

LEAVE_S = 10.0
"""Seconds a process that is told to close has to leave its stage."""
_START = "import sys; sys.path[:] = sys.argv[2:]; from flow._processes.worker import main; main(int(sys.argv[1]))"


@dataclass(frozen=True)
class Job:
    """What all processes of a node are for.

    Attributes:
        node: name of the node.
        payload: the stage and its types, pickled.
        takes: how inputs are written.
        gives: how outcomes are read.
        reads: how values of the cell are written, ``None`` for no cell.
    """

    node: str
    payload: bytes
    takes: Codec
    gives: Codec
    reads: Codec | None


class Child:
    """A process.

    Attributes:
        gone: done once nothing of it is left.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        loop = asyncio.get_running_loop()
        self._link = Link(self._received)
        self._clerk = Clerk(job.reads, self._say)
        self._ready: asyncio.Future[None] = loop.create_future()
        self._over: asyncio.Future[_Said] | None = None
        self._number = 0
        self._closing = self._answered = self._given_up = False
        self._parting: BaseException | None = None
        self._process: Process | None = None
        self.gone: asyncio.Future[None] = loop.create_future()

    @property
    def usable(self) -> bool:
        """Whether it has not ended, nor begun to."""
        return not self._link.lost.done() and not self.gone.done()

    async def start(self) -> None:
        """Start it, and wait until it has entered the stage.

        Raises:
            Exception: what the stage raised when it was unpickled or entered.
            WorkerDied: the process ended meanwhile.
        """
        try:
            await self._spawn()
            await self._ready
        except BaseException:
            await self._end_at_once()
            raise

    async def run(self, value: Any, context: Context) -> Any:
        """Have it handle an item.

        Raises:
            Exception: what the stage raised.
            NotPortable: a value cannot travel.
            WorkerDied: the process ended meanwhile.
            CancelledError: the call was cancelled, or the stage was from inside. What the process was at has ended, or it has.
        """
        body = self._job.takes.encode(value)
        self._number += 1
        heard = self._clerk.begin(self._number, context)
        self._answered = self._given_up = False
        over = self._over = asyncio.get_running_loop().create_future()
        self._say(_call(self._number, context, heard), body)
        try:
            said = await over
        except BaseException:
            if not self._answered:
                await self._give_up()
            raise
        finally:
            self._over = None
            self._clerk.finish()
        return self._outcome(said)

    async def close(self) -> BaseException | None:
        """Ask it to leave the stage and end, then terminate it, then kill it.

        Returns:
            What went wrong on the way out; ``None`` for nothing, or where it had ended before.
        """
        self._closing = True
        overdue: WorkerDied | None = None
        if self._over is not None and not self._over.done():
            self._say(Cancel(self._number))
            if not await _done(self._over, GRACE_S):
                self._signal(signal.SIGKILL)
        self._say(Close())
        for wait_s, number in ((LEAVE_S, signal.SIGTERM), (GRACE_S, signal.SIGKILL)):
            if not await _done(self.gone, wait_s):
                how = f"it had not left the stage {LEAVE_S:g} s after it was told to, and was ended"
                overdue = WorkerDied(self._job.node, how, "let the exit of the stage be quick")
                self._signal(number)
        await asyncio.wait([self.gone])
        return self._parting or overdue

    # --- starting and ending ---

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                # A session of its own: the terminal's interrupt is for the parent to judge, and a kill reaches what it started.
                self._process = await asyncio.create_subprocess_exec(
                    *_command(theirs.fileno()), stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
                )
            except BaseException:
                ours.close()
                raise
        self._watching = asyncio.get_running_loop().create_task(self._watch(self._process))
        await asyncio.get_running_loop().create_unix_connection(lambda: self._link, sock=ours)
        main = describe_main(self._job.payload)
        files = loaded_by_path(self._job.payload)
        self._say(Setup(self._job.node, sys.argv, main, files), self._job.payload)

    async def _watch(self, process: Process) -> None:
        """Wait for the end of it, whoever brings it about, and clear up."""
        try:
            code = await self._ended(process)
        except asyncio.CancelledError:  # the loop is being closed over a crew that was not
            self._signal(signal.SIGKILL)
            code = await process.wait()
        self._link.close()
        await self._clerk.close()
        self._settle(code)

    async def _ended(self, process: Process) -> int:
        exited = asyncio.get_running_loop().create_task(process.wait())
        await asyncio.wait([exited, self._link.lost], return_when=asyncio.FIRST_COMPLETED)
        await _done(exited, GRACE_S)
        self._signal(signal.SIGKILL)  # it has hung on its way out, or programs that its stage started are left
        code = await exited
        await _done(self._link.lost, GRACE_S)  # its last words are still to be read
        return code

    def _settle(self, code: int) -> None:
        how = _how(code)
        self.gone.set_result(None)
        if not self._ready.done():
            self._ready.set_exception(self._parting or WorkerDied(self._job.node, f"{how}, while it started"))
        self._answered = True
        if self._over is not None and not self._over.done():
            self._over.set_result(WorkerDied(self._job.node, how))

    async def _end_at_once(self) -> None:
        self._ready.cancel()
        if self._process is None:
            self.gone.set_result(None)
        self._signal(signal.SIGKILL)
        if (cancelled := await outlast([self.gone])) is not None:
            raise cancelled

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and not self.gone.done():
            with suppress(ProcessLookupError, PermissionError):  # all have ended
                os.killpg(self._process.pid, number)

    # --- calls ---

    async def _give_up(self) -> None:
        """End the attempt, whatever cancels come meanwhile: it is over, or the process is."""
        self._given_up = True
        over = self._over = asyncio.get_running_loop().create_future()
        self._say(Cancel(self._number))
        cancelled = await outlast([asyncio.get_running_loop().create_task(self._outlive(over))])
        if cancelled is not None:
            raise cancelled

    async def _outlive(self, over: "asyncio.Future[_Said]") -> None:
        if not await _done(over, GRACE_S):
            self._signal(signal.SIGKILL)
            await asyncio.wait([self.gone])

    def _outcome(self, said: "_Said") -> Any:
        if isinstance(said, WorkerDied):
            raise said
        message, body = said
        if isinstance(message, Done):
            return unpack_outcome(self._job.gives, message, body)
        if self._closing:
            raise WorkerDied(self._job.node, "it was closed", "wait for the calls before closing")
        raise unpack(message.error, f"in a process of '{self._job.node}'")

    def _say(self, message: Message, body: bytes = b"") -> None:
        self._link.send(encode(message), body)

    def _received(self, frame: Frame) -> None:
        header, body = frame
        message = decode_from_child(header)
        if isinstance(message, Done | Raised):
            if message.number == self._number and self._over is not None:
                self._answered = True  # the caller may have been cancelled, and not know it yet
                if not self._over.done():
                    self._over.set_result((message, body))
        elif isinstance(message, Ready):
            if not self._ready.done():
                self._ready.set_result(None)
        elif isinstance(message, Ended):
            self._parting = None if message.error is None else unpack(message.error, f"in a process of '{self._job.node}'")
        else:
            try:
                self._clerk.serve(message)
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Somebody who looks on raised: that is the call's failure, as if the stage had heard of it."""
        if self._over is not None and not self._over.done() and not self._given_up:
            self._over.set_exception(error)


_Said = tuple[Done | Raised, memoryview] | WorkerDied


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"


async def _done(future: "asyncio.Future[Any]", wait_s: float) -> bool:
    """Wait for a future at most so long, and leave it alone."""
    return bool((await asyncio.wait([future], timeout=wait_s))[0])


def _command(descriptor: int) -> list[str]:
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags")()  # noqa: B009 - as multiprocessing does
    paths = [path or os.getcwd() for path in sys.path]
    return [sys.executable, *flags, "-c", _START, str(descriptor), *paths]


def _call(number: int, context: Context, heard: bool) -> Call:
    deadline_s = context.deadline_s
    if deadline_s is not None:
        deadline_s += time.monotonic() - asyncio.get_running_loop().time()
    return Call(
        number, context.path, context.birth, context.member, context.retry, context.attempt, context.version, context.lag,
        deadline_s, heard,
    )  # fmt: skip

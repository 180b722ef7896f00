"""Inside one process of a node: the stage is unpickled and entered once, and handles one call after the other.

The main thread runs the loop and on it the stage, also where it is synchronous and so blocks it. A second thread listens to the
socket: it hears a cancel, the answer to a read, and the end of the parent while the stage blocks. Any thread may speak.
"""

import asyncio
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from types import FrameType
from typing import Any, NoReturn, cast

from .._context import Context
from .._core.item import Item
from ..by_path import load_by_path
from .codec import optional, pack_outcome, port_codec
from .desk import ChildDesk
from .errors import pack
from .frames import Assembler, Frame, framed
from .main_module import prepare_main
from .messages import (
    GRACE_S,
    Call,
    Cancel,
    Close,
    Ended,
    Message,
    Raised,
    Ready,
    Setup,
    ToChild,
    decode_in_child,
    encode,
)  # fmt: skip


class Speaker:
    """The child's end of the socket."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)  # a program that the stage starts must not hold it open
        self._assembler = Assembler()
        self._lock = threading.Lock()

    def say(self, message: Message, body: bytes = b"") -> None:
        """Send a message, from any thread. Nobody hears what is said after the parent's end."""
        with self._lock, suppress(OSError):
            for chunk in framed(encode(message), body):
                self._socket.sendall(chunk)

    def hear(self) -> list[Frame]:
        """Wait for frames; empty once the parent has closed its end."""
        frames: list[Frame] = []
        while not frames:
            size = self._receive()
            if not size:
                return []
            frames = self._assembler.filled(size)
        return frames

    def _receive(self) -> int:
        try:
            return self._socket.recv_into(self._assembler.space())
        except OSError:  # reset: the parent was killed with words of ours unread
            return 0


class Worker:
    """The stage at work.

    Args:
        speaker: the way to the parent.
        setup: the first words of the parent.
    """

    def __init__(self, speaker: Speaker, setup: Setup) -> None:
        self._speaker, self._node = speaker, setup.node
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event
        self._desk = ChildDesk(setup.node, speaker.say)
        self._task: asyncio.Task[Any] | None = None
        self._number = -1
        self._blocking = False

    def load(self, payload: memoryview) -> None:
        """Unpickle the stage and its types."""
        parts: tuple[Any, Any, Any, Any] = pickle.loads(payload)
        self._stage: Any
        self._stage, takes, gives, reads = parts
        self._takes, self._gives = port_codec(self._node, "in", takes), port_codec(self._node, "out", gives)
        if reads is not None:
            self._desk.reads = port_codec(self._node, "reads", optional(reads))

    async def serve(self) -> None:
        """Enter the stage, handle calls until told to close, leave the stage."""
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stage: object = self._stage
            if isinstance(stage, AbstractAsyncContextManager):
                await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", stage))
            self._speaker.say(Ready())
            await self._stop.wait()
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])

    # --- on the thread that listens ---

    def listen(self, frames: list[Frame]) -> None:
        """Take what the parent says until it ends; then this process ends too."""
        while frames:
            for header, body in frames:
                self._heard(decode_in_child(header), body)
            frames = self._speaker.hear()
        if self._loop is not None and not self._blocking:
            self._on_loop(self._stop.set)
            time.sleep(GRACE_S)
        end_group()

    def _heard(self, message: ToChild, body: memoryview) -> None:
        if isinstance(message, Call):
            self._on_loop(self._begin, message, body)
        elif isinstance(message, Cancel):
            if self._blocking and self._number == message.number:
                end_group()  # what blocks cannot be stopped, and the process with it can
            self._on_loop(self._cancel, message.number)
        elif isinstance(message, Close):
            self._on_loop(self._stop.set)
        elif not isinstance(message, Setup):
            self._desk.answered(message, body)

    def _on_loop(self, function: Callable[..., Any], *arguments: Any) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed: the process is about to end
            self._loop.call_soon_threadsafe(function, *arguments)

    # --- on the loop ---

    def _begin(self, call: Call, body: memoryview) -> None:
        assert self._loop is not None
        self._number = call.number
        self._task = self._loop.create_task(self._attempt(call, body), name=f"{self._node} attempt")
        self._task.add_done_callback(self._ended_unsaid)

    def _ended_unsaid(self, task: "asyncio.Task[Any]") -> None:
        # A task that is cancelled before its first step never runs, and the parent waits for a word.
        if self._task is task:
            error = None if task.cancelled() else task.exception()
            self._finish(Raised(self._number, pack(error or asyncio.CancelledError())))

    def _cancel(self, number: int) -> None:
        if self._number == number and self._task is not None:
            self._task.cancel()

    async def _attempt(self, call: Call, body: memoryview) -> None:
        try:
            with self._desk.teller.telling(call.number if call.heard else None):
                outcome = await self._run(call, body)
            said = pack_outcome(self._gives, call.number, outcome)
        except (Exception, asyncio.CancelledError) as error:
            said = (Raised(call.number, pack(error, skip=2)), b"")
        except BaseException as error:
            end(error)
        self._finish(*said)

    async def _run(self, call: Call, body: memoryview) -> Any:
        value, context = self._takes.decode(body), self._context(call)
        self._blocking = True
        try:
            outcome: Any = self._stage(value, context)
        finally:
            self._blocking = False
        return await outcome if hasattr(outcome.__class__, "__await__") else outcome

    def _finish(self, message: Message, body: bytes = b"") -> None:
        self._task = None
        self._speaker.say(message, body)

    def _context(self, call: Call) -> Context:
        deadline_s = call.deadline_s
        if deadline_s is not None:
            deadline_s += asyncio.get_running_loop().time() - time.monotonic()
        item = Item(None, call.path, call.birth, call.member, call.retry)
        return Context(self._desk.desk, item, call.attempt, call.version, call.lag, deadline_s)


def main(descriptor: int) -> None:
    """The whole life of a process of a node."""
    # A handler that does nothing, and not "ignore", which programs that the stage starts would inherit.
    signal.signal(signal.SIGINT, _ignore)
    speaker = Speaker(descriptor)
    frames = speaker.hear()
    if not frames:
        return  # the parent ended before it said a word
    setup = decode_in_child(frames[0][0])
    assert isinstance(setup, Setup)
    sys.argv[:] = setup.arguments
    worker = Worker(speaker, setup)
    threading.Thread(target=worker.listen, args=(frames,), name="headrace listener", daemon=True).start()
    error = None
    try:
        prepare_main(setup.main)
        load_by_path(setup.files)
        worker.load(frames[0][1])
        asyncio.run(worker.serve())
    except Exception as raised:
        error = pack(raised, skip=1)
    speaker.say(Ended(error))


def _ignore(number: int, frame: FrameType | None) -> None:
    """What an interrupt does here: whether to end is for the parent to say."""


def end(error: BaseException) -> NoReturn:
    """End the process as the interpreter would for an exception that nobody may catch, but at once."""
    code = 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    if not isinstance(error, SystemExit) or isinstance(error.code, str):
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def end_group() -> NoReturn:
    """End this process and every program that its stage started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)

"""A sandbox: a scratch folder, and programs that run in it apart from the rest of the machine.

What is kept apart depends on the machine; ``not_isolated`` says what is not. Each program runs under ``launcher.py``, which
ends it with all it started, also where this process is killed. What even that leaves behind is found by the next run; see
``scratch.py``.

Not a virtual machine: a fault of the kernel is a way out.
"""

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import anyio.to_thread
import msgspec
import pydantic

from stages.cancellation import to_the_end
from stages.tools.scratch import MARK, kill_marked, new_folder, remove

T = TypeVar("T")
LAUNCHER = Path(__file__).with_name("launcher.py")
"""The script that starts programs."""
_PAUSE_S = 0.01
_GRACE_S = 1.0
"""For a launcher to kill what it started, before it is killed itself."""


class SandboxConfig(pydantic.BaseModel):
    """Limits of each program in a sandbox."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    memory_bytes: int = pydantic.Field(default=512 * 2**20, ge=2**20)
    """Address space of one process, in bytes. Not of all together: there may be ``max_processes``."""
    cpu_s: int = pydantic.Field(default=10, ge=1)
    """Processor seconds of one process; it is killed then."""
    file_bytes: int = pydantic.Field(default=16 * 2**20, ge=0)
    """Size of one file that is written, in bytes."""
    max_files: int = pydantic.Field(default=64, ge=8)
    """Open files of one process."""
    max_processes: int = pydantic.Field(default=32, ge=1)
    """Processes and threads at once. Not kept for a run of the superuser, nor where processes are not isolated."""
    output_bytes: int = pydantic.Field(default=16_000, ge=64)
    """Of what a program prints, in bytes: the first and the last half of it are kept, the rest is read and dropped."""


class Finished(msgspec.Struct, frozen=True):
    """What came of a program."""

    output: str
    """What it wrote to standard output and standard error, in the order in which it did. The folder's path reads ``~``."""
    status: int
    """Exit status; 128 and the number of the signal where one ended it."""


class Sandbox:
    """One scratch folder with its programs. An async context manager: leaving kills them and removes it.

    Args:
        config: limits.
    """

    def __init__(self, config: SandboxConfig | None = None) -> None:
        self._config = config or SandboxConfig()
        self._running: set[asyncio.subprocess.Process] = set()

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(isolated)
        self.folder = await _whole(
            anyio.to_thread.run_sync(new_folder), lambda folder: anyio.to_thread.run_sync(remove, folder)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in tuple(self._running):
            await self._end(process)
        await anyio.to_thread.run_sync(remove, self.folder)

    async def run(self, command: Sequence[str | Path], told: bytes = b"") -> Finished:
        """Run a program to its end, in the scratch folder. Cancelling kills it with all it started.

        Args:
            command: an absolute path, and arguments.
            told: its standard input, to the end.
        """
        ours, theirs = os.pipe()
        output = _Output(self._config.output_bytes)
        loop = asyncio.get_running_loop()
        reading, _ = await loop.connect_read_pipe(lambda: output, os.fdopen(ours, "rb", buffering=0))
        try:
            try:
                process = await self._start([str(part) for part in command], theirs)
            finally:
                os.close(theirs)
            try:
                await process.communicate(told)
                status = await process.wait()
            finally:
                await to_the_end(self._end(process))
            await output.over.wait()
        finally:
            reading.close()
        # The folder's name is another in each run, and what a model reads must not be.
        return Finished(output.text().replace(str(self.folder), "~"), status if status >= 0 else 128 - status)

    async def _start(self, command: Sequence[str], output: int) -> asyncio.subprocess.Process:
        settings = json.dumps(_settings(self._config, self.folder, command))
        starting = asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(LAUNCHER), settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=self.folder,
            env=_environment(self.folder),
            start_new_session=True,
        )
        process = await _whole(starting, self._end)
        self._running.add(process)
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Kill it and what it started. Harmless where they are gone."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                await _kill(process)
        self._running.discard(process)
        if "processes" not in isolated():
            await anyio.to_thread.run_sync(kill_marked, self.folder.name)


async def _whole(making: Awaitable[T], undo: Callable[[T], Awaitable[object]]) -> T:
    """Make something; where this is cancelled meanwhile, it is undone as soon as it is there."""
    made = asyncio.ensure_future(making)
    try:
        return await to_the_end(made)
    except asyncio.CancelledError:
        if made.exception() is None:
            await to_the_end(undo(made.result()))
        raise


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Have the launcher end all it started, which is over when it is; where it does not answer, kill it."""
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _GRACE_S)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


class _Output(asyncio.Protocol):
    """Keeps the first and the last of what comes, and takes it slowly where it is far more than that."""

    def __init__(self, most: int) -> None:
        self.over = asyncio.Event()
        self._half = most // 2
        self._patience = 16 * most
        self._first, self._last = bytearray(), bytearray()
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        room = self._half - len(self._first)
        self._first += data[:room]
        self._last += data[room:] if room > 0 else data
        del self._last[: -self._half]
        if self._size > self._patience:
            # A program that prints without end must not keep the loop busy: the pipe fills, and it waits.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()

    def text(self) -> str:
        dropped = self._size - len(self._first) - len(self._last)
        mark = f"\n[cut: {dropped} bytes]\n".encode() if dropped else b""
        return (self._first + mark + self._last).decode(errors="replace")


def not_isolated() -> dict[str, str]:
    """What a program in a sandbox on this machine is not kept from, one line for each. Starts a process the first time."""
    return {name: told for name, told in _NOT_ISOLATED.items() if name not in isolated()}


_NOT_ISOLATED = {
    "network": "it reaches whatever this machine reaches",
    "processes": "it sees other processes of the same user and can signal them; one that hides may live until the next run",
    "writes": "it can write wherever the user of the run can",
    "reads": "it can read whatever the user of the run can, and use sockets in the file system",
    "totals": "memory, processor and disk are limited for each process and file, not for all together",
    "kernel": "it talks to the kernel of the machine, so a fault of that is a way out",
}


@functools.cache
def isolated() -> frozenset[str]:
    """What this machine lets us keep apart: of network, processes and writes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-I", "-S", str(LAUNCHER), "probe"]
        told = subprocess.run(command, cwd=folder, env={}, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return frozenset(json.loads(told.stdout) if told.returncode == 0 and told.stdout else ())


def _settings(config: SandboxConfig, folder: Path, command: Sequence[str]) -> dict[str, object]:
    limits = {
        "RLIMIT_AS": config.memory_bytes,
        "RLIMIT_CPU": config.cpu_s,
        "RLIMIT_FSIZE": config.file_bytes,
        "RLIMIT_NOFILE": config.max_files,
        "RLIMIT_CORE": 0,
    }
    # Elsewhere it counts all processes of the user, of which there may be many more.
    if "processes" in isolated():
        limits["RLIMIT_NPROC"] = config.max_processes
    scratch, root = str(folder), str(folder.parent)
    return {
        "parent": os.getpid(),
        "isolate": bool(isolated()),
        "scratch": scratch,
        "root": root,
        "limits": limits,
        "command": list(command),
    }


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of ours: our variables may hold secrets."""
    home = str(folder)
    # A library of linear algebra takes address space for each of the machine's processors.
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    path = "/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", MARK: folder.name} | single

"""Stages that tests run in processes: a process imports them by name, which it cannot do with what a test file defines."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

import flow
from flow import Context, Failed, Filtered, Many
from flow._spans import UNSEEN


class Job(msgspec.Struct, frozen=True):
    """What the stages take: what to do, and with what."""

    act: str
    text: str = ""
    size: float = 0


class Report(msgspec.Struct, frozen=True):
    """What they give."""

    text: str
    pid: int
    numbers: tuple[int, ...] = ()


class Wider(Report, frozen=True):
    """A report that its declared class would not carry."""

    more: int = 0


class Hidden(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = sys.stdout


class Odd(Exception):
    """An exception whose arguments are not those it was made with."""

    def __init__(self, code: int, word: str) -> None:
        self.code = code
        super().__init__(f"{word} ({code})")


def report(text: str, numbers: tuple[int, ...] = ()) -> Report:
    return Report(text, os.getpid(), numbers)


async def act(job: Job, context: Context) -> Report | Many[Report] | Failed[Report] | Filtered:
    """Whatever the job says."""
    if job.act == "plain":
        return report(job.text, tuple(range(int(job.size))))
    if job.act == "large":
        return report("x" * int(job.size))
    if job.act == "many":
        return Many([report(f"{index}") for index in range(int(job.size))])
    if job.act == "failed":
        return Failed(report(job.text), "bad", "in detail")
    if job.act == "filtered":
        return Filtered("useless", "in detail")
    if job.act == "wider":
        return Wider(job.text, os.getpid(), (), 3)
    if job.act == "untyped":
        return {"text": job.text}  # type: ignore[return-value]
    if job.act in ("sleep", "stubborn", "marked"):
        return await rest(job)
    if job.act == "modules":
        return report(" ".join(sorted({"jax", "numpy", "pytest", "multiprocessing"} & set(sys.modules))))
    if job.act == "raise":
        raise {"value": ValueError("odd"), "hidden": Hidden("no way out"), "odd": Odd(7, "seven")}[job.text]
    if job.act == "cancel":
        raise asyncio.CancelledError
    return report(" ".join(await seen(job, context)))


async def rest(job: Job) -> Report:
    """Sleep; ``marked`` writes a file when it has cleaned up, ``stubborn`` does not listen to a cancel."""
    while True:
        try:
            await asyncio.sleep(job.size)
            return report(job.text)
        except asyncio.CancelledError:
            if job.act == "marked":
                await asyncio.sleep(0.01)
                mark(job.text)
            if job.act != "stubborn":
                raise


def mark(path: str) -> None:
    Path(path).write_text("clean")


async def seen(job: Job, context: Context) -> list[str]:
    """What the context shows."""
    if job.act == "context":
        left = 0.0 if context.deadline_s is None else context.deadline_s - asyncio.get_running_loop().time()
        return [*map(str, (*context.key, context.birth, context.member, context.version, context.lag)), f"{left:.0f}"]
    if job.act == "read":
        newest = context.read()
        return [str(newest.value), str(newest.version), str(newest is context.read())]
    if job.act == "read on thread":
        return [str((await asyncio.to_thread(context.read)).version)]
    if job.act == "permit":
        async with context.permit("sandbox", 2):
            await asyncio.sleep(job.size)
        return ["had it"]
    if job.act == "span":
        with context.span("outer", size=job.size):
            await asyncio.gather(*(spanned(context, index) for index in range(2)))
        return []
    if job.act == "heard":
        return [str(span is not UNSEEN) for span in (flow.span("seen"), context.span("seen"))]
    assert job.act == "rows"
    context.report({"loss": 0.5, "name": job.text, "nothing": None})
    return []


async def spanned(context: Context, index: int) -> None:
    with context.span(f"inner {index}"):
        await asyncio.sleep(0.01)


def block(job: Job, context: Context) -> Report:
    """The same for what blocks or ends the process."""
    if job.act == "exit":
        sys.exit(int(job.size))
    if job.act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.act == "leave child":
        if (pid := os.fork()) == 0:  # it holds the socket of its parent open
            time.sleep(60)
        Path(job.text).write_text(f"{pid}")
        os._exit(3)
    if job.act == "print":
        print(job.text)
    if job.act == "sleep":
        time.sleep(job.size)
    if job.act == "wait":
        while not Path(job.text).exists():
            time.sleep(0.002)
    if job.act == "stop":
        raise StopIteration
    return report(job.text)


class Resource:
    """A stage that is entered and left in each process; each writes what it does into a file of its own."""

    def __init__(self, folder: str, fail: str = "") -> None:
        self.folder, self.fail = folder, fail

    def note(self, what: str) -> int:
        """Write it down; gives how many processes have written."""
        with (Path(self.folder) / str(os.getpid())).open("a") as file:
            file.write(f"{what}\n")
        return len(list(Path(self.folder).iterdir()))

    async def __aenter__(self) -> "Resource":
        again = self.note("enter") > 1
        if self.fail == "slow again" and again:
            await asyncio.sleep(0.3)
        if self.fail == "enter" or (self.fail == "enter again" and again):
            raise OSError(f"no device in {os.getpid()}")
        if self.fail == "die":
            os._exit(5)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.note("leave")
        if self.fail == "leave":
            raise OSError("stuck")

    async def __call__(self, job: Job, context: Context) -> Report:
        if job.act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return await rest(job)


class Explosive:
    """An object that cannot be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return explode, ()

    def __call__(self, job: Job, context: Context) -> Report:
        return report("")


def explode() -> None:
    raise ImportError("not here")

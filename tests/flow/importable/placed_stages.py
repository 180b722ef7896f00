"""Stages that are run on the loop, on threads and in processes, and must not be able to tell."""

import asyncio
import os
import signal
import time

import msgspec

from flow import Context, Failed, Filtered, Many


class Task(msgspec.Struct, frozen=True):
    """What is to be done with an item."""

    number: int
    act: str = "plain"


class Done(msgspec.Struct, frozen=True):
    """What a stage saw and made."""

    number: int
    path: tuple[int, ...]
    birth: int
    member: int
    retry: int
    node: str
    version: int | None = None
    read: str = ""


def done(task: Task, context: Context) -> Done:
    read = context.read().value if context.version is not None else ""
    return Done(task.number, context.path, context.birth, context.member, context.retry, context.key[0], context.version, read)


def act(task: Task, context: Context) -> Done | Many[Done] | Failed[Done] | Filtered:
    """Whatever the task says."""
    if task.act == "raise" or (task.act == "raise once" and context.retry == 0):
        raise ValueError(f"refused {task.number}")
    if task.act == "filter":
        return Filtered("dull")
    if task.act == "mark":
        return Failed(done(task, context), "marked", "in detail")
    if task.act == "many":
        return Many([done(task, context)] * 3)
    if task.act == "report":
        context.report({"number": task.number})
        with context.span("inside", number=task.number):
            return done(task, context)
    if task.act == "hang":
        time.sleep(0.6)
    return done(task, context)


async def act_later(task: Task, context: Context) -> Done | Many[Done] | Failed[Done] | Filtered:
    """The same, asynchronously, holding a permit."""
    async with context.permit("desk"):
        await asyncio.sleep(0.001)
    if task.act == "hang":
        await asyncio.sleep(60)
    return act(task, context)


class Counter:
    """A stage that holds something: it says whether it is open."""

    def __init__(self) -> None:
        self.open = False

    async def __aenter__(self) -> "Counter":
        self.open = True
        return self

    async def __aexit__(self, *error: object) -> None:
        self.open = False

    async def __call__(self, task: Task, context: Context) -> Done:
        assert self.open
        return done(task, context)


def die_once(number: int, context: Context) -> int:
    """Item 3 takes its process along the first time."""
    if number == 3 and context.retry == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number

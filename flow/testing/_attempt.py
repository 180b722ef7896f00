"""One attempt of a stage, driven step by step: how often it awaits, how long it holds the loop, what it leaves.

It can be cut short at any await. The cancel is a real one, of the task that runs the attempt, so stage and engine see what
they would see of any other. It comes in two flavours: while the stage waits, and when what it waited for is there already and
it was to go on, which is when an element can be lost that was taken and not yet put anywhere.
"""

import asyncio
import time
from collections.abc import Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass
class Attempt:
    """What was seen of one attempt.

    Attributes:
        index: of the input among those of the trial.
        number: executions of it before.
        awaits: times it gave the loop away.
        longest_s: longest real time for which it did not.
        ended: how: with a result, an error, or a cancel.
        result: what it gave.
        error: what it raised.
        cut_at_s: virtual time of the cancel; ``None`` where it was not cut.
        ended_at_s: virtual time of its end.
        tasks: tasks started in it.
        left: names of those that went on after it.
    """

    index: int
    number: int
    awaits: int = 0
    longest_s: float = 0.0
    ended: Literal["result", "error", "cancel"] | None = None
    result: Any = None
    error: BaseException | None = None
    cut_at_s: float | None = None
    ended_at_s: float = 0.0
    tasks: list["asyncio.Task[Any]"] = field(default_factory=list["asyncio.Task[Any]"])
    left: tuple[str, ...] = ()


CURRENT: ContextVar[list["asyncio.Task[Any]"] | None] = ContextVar("CURRENT", default=None)
"""Where tasks are noted that the code under way starts, and those they start."""


def note_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Have a loop note each task under what started it."""

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **more)
        noted = CURRENT.get()
        if noted is not None:
            noted.append(task)
        return task

    loop.set_task_factory(make)


def going_on(tasks: "list[asyncio.Task[Any]]") -> tuple[str, ...]:
    """Names of the tasks that nobody has ended. One that was cancelled has its end before it."""
    return tuple(task.get_coro().__qualname__ for task in tasks if not task.done() and not task.cancelling())  # type: ignore[union-attr]


async def drive(stage: Any, value: Any, context: Any, seen: Attempt, cut: int | None, *, woken: bool) -> Any:
    """Make an attempt and write down what is seen of it.

    Args:
        stage: what is called.
        value: its input.
        context: its context.
        seen: where to write.
        cut: number of the await at which it is cancelled, from 1; ``None`` for none.
        woken: cancel it when what it waits for is there, not while it waits.
    """
    loop = asyncio.get_running_loop()
    before = CURRENT.set(seen.tasks)
    try:
        began = time.perf_counter()
        result = stage(value, context)
        seen.longest_s = time.perf_counter() - began
        if hasattr(result, "__await__"):
            result = await _Steps(result, seen, cut, woken)
    except asyncio.CancelledError as error:
        seen.ended, seen.error = "cancel", error
        raise
    except BaseException as error:
        seen.ended, seen.error = "error", error
        raise
    else:
        seen.ended, seen.result = "result", result
        return result
    finally:
        seen.ended_at_s, seen.left = loop.time(), going_on(seen.tasks)
        CURRENT.reset(before)


class _Steps:
    """An awaitable that passes every step on to another one."""

    def __init__(self, inner: Any, seen: Attempt, cut: int | None, woken: bool) -> None:
        self._inner, self._seen, self._cut, self._woken = inner.__await__(), seen, cut, woken

    def __await__(self) -> Generator[Any, Any, Any]:
        seen, step, argument = self._seen, self._inner.send, None
        while True:
            began = time.perf_counter()
            try:
                waits_for = step(argument)
            except StopIteration as end:
                return end.value
            finally:
                seen.longest_s = max(seen.longest_s, time.perf_counter() - began)
            seen.awaits += 1
            here = seen.awaits == self._cut
            if here and not self._woken:
                self._cancel()
            try:
                got = yield waits_for
                if here and self._woken:
                    self._cancel()
                    yield  # asyncio raises the cancel where a task that runs waits next
                step, argument = self._inner.send, got
            except BaseException as error:
                step, argument = self._inner.throw, error

    def _cancel(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._seen.cut_at_s = asyncio.get_running_loop().time()
        task.cancel()

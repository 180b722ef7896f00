"""Where user code stands: the line in which a task waits, or a thread runs. Looked up only when somebody asks."""

import asyncio
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_HERE = str(Path(__file__).parent)
_STANDARD = sysconfig.get_paths()["stdlib"]
_PACKAGES = (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"])

Place = str
"""A function and its line, as ``Env.step (swe.py:88)``; empty where no user code is on the stack."""


def place_of_task(task: "asyncio.Task[Any]") -> Place:
    """The innermost line of user code in which a task waits."""
    return _place(list(_awaited(task.get_coro())))


def place_of_thread(thread: int) -> Place:
    """The innermost line of user code in which a thread is."""
    frame, stack = sys._current_frames().get(thread), list[FrameType]()  # pyright: ignore[reportPrivateUsage] - documented
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    return _place(stack[::-1])


def _awaited(waiting: Any) -> Iterator[FrameType]:
    """Frames from a coroutine inwards, along what each one awaits. What a task waits for in another task is not followed."""
    while waiting is not None:
        frame = next(
            (f for name in ("cr_frame", "gi_frame", "ag_frame") if (f := getattr(waiting, name, None)) is not None), None
        )
        if frame is not None:
            yield frame
        names = ("cr_await", "gi_yieldfrom", "ag_await")
        waiting = next((w for name in names if (w := getattr(waiting, name, None)) is not None), None)


def _place(stack: list[FrameType]) -> Place:
    """The user's own frame nearest to the inside, else one of an installed package."""
    inner = [frame for frame in reversed(stack) if _kind(frame) != "ours"]
    frame = next((f for f in inner if _kind(f) == "user"), next((f for f in inner if _kind(f) == "package"), None))
    if frame is None:
        return ""
    name = frame.f_code.co_qualname.rsplit("<locals>.", 1)[-1]
    return f"{name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


def _kind(frame: FrameType) -> str:
    """Whose code it is: ``ours`` (the engine and what comes with Python), ``package`` (installed), or ``user``."""
    file = frame.f_code.co_filename
    if file.startswith((_HERE, "<frozen")):
        return "ours"
    if file.startswith(_PACKAGES):
        return "package"
    return "ours" if file.startswith(_STANDARD) else "user"

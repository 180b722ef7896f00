"""Stages that show what they do, with nothing but ``flow.span`` and its kin: on the loop, on threads and in processes."""

import asyncio
import math
import time
from pathlib import Path

import flow
from flow import Context


def look(number: int, kind: str) -> int:
    """What a stage calls far from any context."""
    with flow.span("outer", number=number):
        flow.mark("half", kind=kind)
        with flow.span("inner"):
            flow.count("found", number, "things")
    return number


def show(number: int, context: Context) -> int:
    return look(number, "plain")


async def show_later(number: int, context: Context) -> int:
    await asyncio.sleep(0.001)
    return look(number, "later")


async def show_beside(number: int, context: Context) -> int:
    """Four at once, of other lengths each: two tasks and two threads. Each logs how long it took."""

    def logged(name: str, began: float) -> None:
        flow.mark("logged", of=name, seconds=time.monotonic() - began)

    async def task(name: str, seconds: float) -> None:
        with flow.span(name):
            began = time.monotonic()
            await asyncio.sleep(seconds)
            logged(name, began)

    def thread(name: str, seconds: float) -> None:
        with flow.span(name):
            began = time.monotonic()
            time.sleep(seconds)
            logged(name, began)

    with flow.span("all"):
        threads = (asyncio.to_thread(thread, f"thread {index}", 0.03 + 0.01 * index) for index in range(2))
        await asyncio.gather(task("task 0", 0.02), task("task 1", 0.05), *threads)
    return number


async def tell_of_a_request(number: int, context: Context) -> int:
    """What a server told of a request, once it is answered."""
    with context.span("request"):
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(0.02)
        context.spent("queue", began_s, began_s + 0.005, number=number)
        context.spent("answer", began_s + 0.005, began_s + 0.015)
    return number


async def hold_permits(number: int, context: Context) -> int:
    """Says itself from when to when it held one."""
    async with context.permit({"desk": 1, "starts": 1}):
        began = time.monotonic()
        await asyncio.sleep(0.02)
        ended = time.monotonic()
    flow.mark("asked", number=number, from_s=began, to_s=ended)
    return number


class Unprintable:
    """Gives no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def show_amiss(number: int, context: Context) -> int:
    """Hands over what no trace can hold as it is."""
    with flow.span("\ud800", big=10**30, gap=math.nan, lone="\ud800", none=None, bad=Unprintable()):
        for value in ("much", 10**400, "2.5"):
            flow.count("amiss", value)  # type: ignore[arg-type]
        flow.mark("amiss", flows=[-1], at=Path("x"))
    return number

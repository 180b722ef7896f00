"""A caller who is cancelled, once or again and again, leaves a run that is ended once and whole."""

import asyncio
import threading

import pytest

from flow import Collect, Context, Graph, Run, Threads
from flow.testing import run_virtual


def line(stage, count=5, **settings) -> Graph:
    graph = Graph("line")
    work = graph.stage("stage", stage, **settings)
    _ = graph.source("source", range(count)) >> work >> graph.sink("sink", lambda value, context: None)
    return graph


def test_further_cancels_do_not_cut_the_cleaning_up_short():
    """S8, S12, S26: a second interrupt while workers and stages take their time to end; each is done once and whole."""
    log: list[str] = []

    class Slow:
        async def __aenter__(self) -> None:
            log.append("open")

        async def __aexit__(self, *_: object) -> None:
            await asyncio.sleep(5)
            log.append("closed")

        async def __call__(self, value: int, context: Context) -> int:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(5)
                log.append("tidied up")
            return value

    graph = line(Slow(), count=100)

    async def main() -> tuple[float, Run]:
        run = Run(graph.build())
        task = asyncio.create_task(run.finish())
        for _ in range(6):
            await asyncio.sleep(2)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return asyncio.get_running_loop().time(), run

    ended, run = run_virtual(main())
    assert log == ["open", "tidied up", "closed"]
    assert ended == 12
    assert (run.summary().status, run.summary().faults) == ("suspended", ())
    assert [channel.leased for node in run.state.nodes.values() if (channel := node.input) is not None] == [0, 0]


def test_a_second_cancel_does_not_block_the_loop_while_a_thread_ends():
    """S24, S26: the loop goes on until the thread is done, however impatient the caller is."""
    inside, may_end = threading.Event(), threading.Event()

    def block(value: int, context: Context) -> int:
        inside.set()
        may_end.wait(10)
        return value

    graph = line(block, placement=Threads())

    async def main() -> Run:
        run = Run(graph.build())
        task = asyncio.create_task(run.finish())
        await asyncio.to_thread(inside.wait, 10)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.005)  # comes back only if the loop is free
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return run

    assert asyncio.run(main()).summary().status == "suspended"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headrace-stage")]


def test_a_cancel_while_stages_are_opened_closes_those_that_are_open():
    """S31: and waits for no load that may take minutes."""
    log: list[str] = []

    async def load(value: str, version: int) -> None:
        await asyncio.sleep(1000)

    graph = line(Resource(log))
    steps = graph.sink("steps", Steps(), collect=Collect(1))
    _ = graph.source("more", [1]) >> steps
    graph.feedback(steps, graph.latest("weights", str, load=load), initial="first")

    async def main() -> tuple[float, Run]:
        run = Run(graph.build())
        task = asyncio.create_task(run.finish())
        await asyncio.sleep(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.get_running_loop().time(), run

    ended, run = run_virtual(main())
    assert (ended, log, run.summary().status) == (3, ["open stage", "close stage"], "suspended")


class Steps:
    """A sink of steps that does nothing."""

    def add(self, value: int, context: Context) -> None: ...

    def finish(self, context: Context) -> str:
        return ""


class Resource:
    """A stage that is opened and closed."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    async def __aenter__(self) -> None:
        self._log.append("open stage")

    async def __aexit__(self, *_: object) -> None:
        self._log.append("close stage")

    async def __call__(self, value: int, context: Context) -> int:
        return value

"""The end of a run has a bound, and nothing of it is left, or what is left is named."""

import asyncio
import gc
import os
import re
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import pytest

from flow import Collect, Context, Drop, Graph, Retry, Run, StageFailed, Stalled, Threads
from flow.testing import run_virtual

ENDS = ("completed", "drained", "suspended", "suspended in time", "aborted", "failed", "stalled", "cancelled")


def line(stage, count=10**9, **settings) -> Graph:
    graph = Graph("line")
    work = graph.stage("stage", stage, **settings)
    _ = graph.source("source", range(count)) >> work >> graph.sink("sink", lambda value, context: None)
    return graph


def normal(text: str) -> str:
    return re.sub(r"py:\d+", "py:N", text)


async def ended(run: Run) -> str:
    """How a run came to its end, as text."""
    try:
        return str((await run.finish()).status)
    except asyncio.CancelledError:
        asyncio.current_task().uncancel()  # type: ignore[union-attr]
        return "cancelled"
    except (StageFailed, Stalled, OSError) as error:
        return type(error).__name__


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_nothing_of_a_run_outlives_it(how, tmp_path, monkeypatch):
    """S8, S12, S23, S26: by looking at tasks, threads, children, descriptors and temporary files, however it ended.

    With what a graph can be in the midst of: threads, deadlines, a pause before a retry, permits, waits for a pool and for
    room, groups, steps, loads, and stages that hold a process, a file and a socket.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    few = how == "completed"

    class Holder:
        """Holds what a stage may hold."""

        async def __aenter__(self) -> None:
            self.file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the stage
            self.server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
            self.process = await asyncio.create_subprocess_exec("sleep", "1000")

        async def __aexit__(self, *_: object) -> None:
            self.process.kill()
            await self.process.wait()
            self.server.close()
            await self.server.wait_closed()
            self.file.close()

        async def __call__(self, value: int, context: Context) -> int:
            async with context.permit("tool"):
                await asyncio.sleep(0.001)
            if value % 5 == 2 and context.retry == 0:
                raise ValueError("again")
            return value

    def on_thread(value: int, context: Context) -> int:
        if how == "failed" and value == 40:
            raise ValueError("broken")
        return value

    async def slow(value: int, context: Context) -> int:
        await asyncio.sleep(1000 if value == 7 and how not in ("completed", "drained", "failed") else 0.001)
        return value

    class Learner:
        def add(self, value: object, context: Context) -> None: ...

        def finish(self, context: Context) -> int:
            return 0

    async def load(value: int, version: int) -> None:
        await asyncio.sleep(0.01)

    graph = Graph("all", pools={"tool": 1, "box": 2})
    cell = graph.latest("weights", int, load=load)
    tasks = graph.source("tasks", range(6 if few else 10**9))
    members = graph.repeat("members", tasks, n=2)
    held = graph.stage("held", Holder(), workers=3, deadline_s=50, on_error=Retry(1, then=Drop(), backoff_s=0.02))
    threads = graph.stage("threads", on_thread, workers=2, placement=Threads(), deadline_s=50, reads=cell)
    slowly = graph.stage("slow", slow, workers=3, needs={"box": 1}, order="input")
    learn = graph.sink("learn", Learner(), collect=Collect(2), placement=Threads())
    _ = tasks >> members >> held >> threads >> slowly >> graph.group("groups", slowly) >> learn
    graph.feedback(learn, cell, initial=0)

    async def main() -> str:
        run = Run(graph.build(), closing_s=5, stall_s=0.4 if how == "stalled" else 600)
        loop, current = asyncio.get_running_loop(), asyncio.current_task()
        assert current is not None
        stops = {
            "drained": run.drain, "suspended": run.suspend, "suspended in time": lambda: run.suspend(0.1),
            "aborted": lambda: run.abort(OSError("enough")), "cancelled": current.cancel,
        }  # fmt: skip
        if how in stops:
            loop.call_later(0.1, stops[how])
        outcome = await ended(run)
        assert asyncio.all_tasks() == {current}
        assert run.summary().faults == ()
        assert run.summary().abandoned == ()
        return outcome

    complaints: list[str] = []

    def outcome() -> str:
        with asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: complaints.append(str(context)))
            return runner.run(main())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = around()
        expected = {"suspended in time": "suspended", "aborted": "OSError", "failed": "StageFailed", "stalled": "Stalled"}
        assert outcome() == expected.get(how, how)
        gc.collect()
    assert complaints == []
    assert around() == before


def around() -> tuple[list[str], int, str, list[str]]:
    """Threads, open descriptors, children and temporary files of this process. asyncio's own thread waits for children."""
    names = [thread.name for thread in threading.enumerate() if not thread.name.startswith(("waitpid", "asyncio"))]
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    return sorted(names), len(os.listdir("/proc/self/fd")), children, sorted(os.listdir(tempfile.gettempdir()))


async def swallow(value: int, context: Context) -> int:
    """Takes no cancel for an answer."""
    while True:
        try:
            await asyncio.sleep(10**6)
        except asyncio.CancelledError:
            continue


def test_a_stage_that_swallows_every_cancel_is_left_behind_and_named():
    """S12: the run ends within its bound, its ledger balances, and asyncio.run comes to its end too."""

    async def main() -> tuple[str, Run]:
        run = Run(line(swallow, workers=2).build(), closing_s=3)
        asyncio.get_running_loop().call_later(1, run.suspend)
        outcome = await ended(run)
        assert asyncio.get_running_loop().time() == pytest.approx(4, abs=0.2)
        return outcome, run

    outcome, run = run_virtual(main())
    assert outcome == "suspended"
    assert [normal(left) for left in run.summary().abandoned] == [
        "stage/0 in swallow (test_closing.py:N)", "stage/1 in swallow (test_closing.py:N)",
    ]  # fmt: skip
    assert run.summary().faults == ()
    assert run.summary().leftovers["stage (leased)"] == 2


def test_what_is_left_behind_stands_in_the_error_of_the_run():
    async def main() -> OSError:
        run = Run(line(swallow).build(), closing_s=300)
        asyncio.get_running_loop().call_later(1, run.abort, OSError("enough"))
        with pytest.raises(OSError, match="enough") as caught:
            await run.finish()
        assert asyncio.get_running_loop().time() == pytest.approx(2, abs=0.2)  # an abort does not wait five minutes
        return caught.value

    assert [normal(note) for note in run_virtual(main()).__notes__] == [
        "leftover tasks: stage/0 in swallow (test_closing.py:N)"
    ]


def test_an_abort_hurries_a_run_that_is_closing():
    async def main() -> float:
        run = Run(line(swallow).build(), closing_s=300)
        loop = asyncio.get_running_loop()
        loop.call_later(1, run.suspend)
        loop.call_later(5, run.abort, OSError("enough"))
        with pytest.raises(OSError, match="enough"):
            await run.finish()
        return loop.time()

    assert run_virtual(main()) == pytest.approx(6, abs=0.2)


def test_a_cleaning_up_that_hangs_is_cancelled_once_more():
    log: list[str] = []

    async def work(value: int, context: Context) -> int:
        try:
            await asyncio.sleep(10**6)
        finally:
            try:
                await asyncio.sleep(10**6)
            finally:
                log.append("gone")
        return value

    async def main() -> Run:
        run = Run(line(work).build(), closing_s=3)
        asyncio.get_running_loop().call_later(1, run.suspend)
        await run.finish()
        return run

    assert run_virtual(main()).summary().abandoned == ()
    assert log == ["gone"]


@pytest.mark.parametrize("hangs", [1, 10**9])
def test_a_stage_that_never_closes_is_cancelled_and_told(hangs):
    """However deaf it is; the others are closed all the same where it is not."""
    closed: list[str] = []

    class Deaf:
        def __init__(self, name: str, hangs: int) -> None:
            self.name, self.hangs = name, hangs

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None:
            for _ in range(self.hangs):
                try:
                    await asyncio.sleep(10**6)
                except asyncio.CancelledError:
                    if self.hangs == 1:
                        raise
            closed.append(self.name)

        async def __call__(self, value: int, context: Context) -> int:
            return value

    graph = Graph("closing")
    first, second = graph.stage("first", Deaf("first", 0)), graph.stage("second", Deaf("second", hangs))
    _ = graph.source("source", range(3)) >> first >> second >> graph.sink("sink", lambda value, context: None)

    async def main() -> Run:
        run = Run(graph.build(), stall_s=20)
        with pytest.raises(
            TimeoutError, match=r"to close in time, got the closing of a stage in Deaf.__aexit__ \(test_closing"
        ):
            await run.finish()
        assert asyncio.get_running_loop().time() == pytest.approx(20, abs=1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return run

    assert run_virtual(main()).summary().status == "failed"
    assert closed == ["first"]


@pytest.mark.slow
def test_a_thread_past_its_deadline_is_given_up_and_its_worker_goes_on():
    """S4, S6: the item has failed for its deadline; what the thread still gives is thrown away, and counted."""
    may_end = threading.Event()
    got: list[int] = []

    def hang(value: int, context: Context) -> int:
        if value % 4 == 0:
            may_end.wait(20)
        return value

    graph = Graph("hangs")
    stage = graph.stage("stage", hang, placement=Threads(), deadline_s=0.05, on_error=Drop())
    _ = graph.source("source", range(10)) >> stage >> graph.sink("sink", lambda value, context: got.append(value))

    async def main() -> Run:
        run = Run(graph.build(), closing_s=10)
        asyncio.get_running_loop().call_later(0.5, may_end.set)
        await run.finish()
        return run

    run = asyncio.run(main())
    node = run.summary().nodes["stage"]
    assert got == [1, 2, 3, 5, 6, 7, 9]
    assert (node.dropped, node.lost) == ({"DeadlineExceeded": 3}, {"late result": 3})
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headrace-stage")]


def test_a_stage_whose_threads_hang_again_and_again_ends_the_run():
    may_end = threading.Event()
    graph = line(
        lambda value, context: may_end.wait(20), placement=Threads(), deadline_s=0.01, on_error=Drop(most=99), budget=None
    )
    with pytest.raises(StageFailed, match=r"deadline of 0\.01 s, got 11 threads that still run; give what they wait") as caught:
        asyncio.run(Run(graph.build(), closing_s=0.05).finish())
    assert normal(caught.value.__notes__[-1]) == "leftover tasks: thread of stage in <lambda> (test_closing.py:N), 12 times"
    may_end.set()
    for thread in threading.enumerate():
        if thread.name.startswith("headrace-stage"):
            thread.join(10)


HANGS = """
import asyncio, threading
from flow import Context, Graph, Run, Threads

def hang(value: int, context: Context) -> int:
    threading.Event().wait()
    return value

async def deaf(value: int, context: Context) -> int:
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

graph = Graph("hangs")
one, two = graph.stage("one", hang, placement=Threads()), graph.stage("two", deaf)
graph.source("a", range(9)) >> one >> graph.sink("b", lambda value, context: None)
graph.source("c", range(9)) >> two >> graph.sink("d", lambda value, context: None)

async def main():
    run = Run(graph.build(), closing_s=0.1)
    asyncio.get_running_loop().call_later(0.1, run.suspend)
    print(*(await run.finish()).abandoned, sep=chr(10))

asyncio.run(main())
print("the end")
"""


@pytest.mark.slow
def test_a_process_ends_though_a_thread_and_a_task_of_its_run_never_do():
    """S21: neither asyncio.run nor the interpreter waits for them."""
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=20, check=False)
    left = "graph 'hangs' left behind: two/0 in deaf (<string>:12); thread of one in hang (<string>:6)\n"
    assert (done.returncode, done.stderr) == (0, left)
    assert done.stdout.splitlines() == ["two/0 in deaf (<string>:12)", "thread of one in hang (<string>:6)", "the end"]

"""Calls across processes: what a stage returns and raises, crashes, cancels, and what cannot cross."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import process_stages
import pytest
from process_stages import Job, Odd, Report

from flow import Failed, Filtered, Many
from flow._errors import NotPortable, RaisedElsewhere, WorkerDied
from flow._processes.crew import ProcessCrew
from flow.testing import context

pytestmark = pytest.mark.slow


def ask(runner: asyncio.Runner, crew: ProcessCrew, job: Any) -> Any:
    return runner.run(crew.call(job, context()))


async def cut(crew: ProcessCrew, job: Job, after_s: float) -> float:
    """Cancel a call; gives the seconds from the cancel to its end."""
    task = asyncio.create_task(crew.call(job, context()))
    await asyncio.sleep(after_s)
    task.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - began


def test_what_a_stage_returns_comes_back_as_it_was(runner, acting):
    plain = ask(runner, acting, Job("plain", "text", 3))
    assert plain == Report("text", plain.pid, (0, 1, 2))
    many = ask(runner, acting, Job("many", size=2))
    assert (type(many), [value.text for value in many.values]) == (Many, ["0", "1"])
    failed = ask(runner, acting, Job("failed", "text"))
    assert (type(failed), failed.value.text, failed.reason, failed.detail) == (Failed, "text", "bad", "in detail")
    assert ask(runner, acting, Job("filtered")) == Filtered("useless", "in detail")


def test_a_large_value_comes_through_whole(runner, acting):
    text = "0123456789abcdef" * (1 << 19)
    assert ask(runner, acting, Job("plain", text)).text == text
    assert ask(runner, acting, Job("large", size=1 << 23)).text == "x" * (1 << 23)


def test_each_of_many_calls_is_answered_once_by_either_process(runner, acting):
    """C1."""
    answers: list[Report] = []

    async def work(numbers: "list[int]") -> None:
        while numbers:
            number = numbers.pop()
            answer = await acting.call(Job("plain", f"{number}"), context())
            assert answer.text == f"{number}"
            answers.append(answer)

    async def main() -> None:
        numbers = list(range(200))
        await asyncio.gather(work(numbers), work(numbers))

    runner.run(main())
    assert sorted(int(answer.text) for answer in answers) == list(range(200))
    assert len({answer.pid for answer in answers}) == 2


def test_an_exception_comes_back_with_its_class_and_the_traceback_in_a_note(runner, acting):
    with pytest.raises(ValueError, match="odd") as raised:
        ask(runner, acting, Job("raise", "value"))
    assert str(raised.value) == "odd"
    note = raised.value.__notes__[0]
    assert note.startswith("raised in a process of 'node':\nTraceback")
    assert "process_stages.py" in note
    assert "flow/_processes" not in note
    with pytest.raises(Odd) as odd:
        ask(runner, acting, Job("raise", "odd"))
    assert (str(odd.value), odd.value.code) == ("seven (7)", 7)
    with pytest.raises(RaisedElsewhere, match="Hidden: no way out"):
        ask(runner, acting, Job("raise", "hidden"))


def test_a_cancellation_from_inside_the_stage_is_raised_and_cancels_nobody(runner, acting):
    """Whoever calls can tell it from one of its own: nobody has asked for it."""

    async def main() -> int:
        with pytest.raises(asyncio.CancelledError):
            await acting.call(Job("cancel"), context())
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert runner.run(main()) == 0


def test_a_stage_that_raises_stop_iteration_does_not_hang(runner, blocking):
    with pytest.raises(RuntimeError, match="StopIteration"):
        ask(runner, blocking, Job("stop"))


def test_a_value_that_would_come_out_different_is_refused(runner, acting):
    """A placement changes nothing a stage can see."""
    with pytest.raises(NotPortable, match=r"node\.out: expected exactly Report, since .* got Wider; declare the class itself"):
        ask(runner, acting, Job("wider"))
    with pytest.raises(NotPortable, match=r"node\.out: expected exactly Report, since .* got dict"):
        ask(runner, acting, Job("untyped"))
    with pytest.raises(NotPortable, match=r"node\.in: expected exactly Job, since .* got str"):
        ask(runner, acting, "text")
    assert ask(runner, acting, Job("plain", "after")).text == "after"


@pytest.mark.parametrize(
    ("stage", "takes", "gives", "text"),
    [
        (
            lambda job, _: job,
            Job,
            Report,
            r"node\.stage \(here\.py:3\): expected a stage and types that can be pickled.*lambda",
        ),
        (process_stages.act, Any, Report, r"node\.in .*a declared type.*got anything \(untyped\); annotate the stage"),
        (process_stages.act, Job, Job | Report, r"node\.out .*a type that msgspec can carry.*must be tagged.*; make it of"),
    ],
)
def test_what_cannot_go_to_a_process_is_refused_before_one_is_started(stage, takes, gives, text):
    with pytest.raises(NotPortable, match=f"(?s){text}"):
        ProcessCrew("node", stage, takes, gives, 1, where="here.py:3")


ENDS = [
    (Job("kill"), "SIGKILL"),
    (Job("exit", size=3), "exit code 3"),
    (Job("exit"), "exit code 0"),
]


def test_the_end_of_a_process_is_the_failure_of_its_item_alone(runner, blocking, tmp_path):
    """The other process works on, and the next call has a process."""
    signal_file = tmp_path / "go on"

    async def main() -> None:
        other = asyncio.create_task(blocking.call(Job("wait", str(signal_file)), context()))
        await asyncio.sleep(0)
        for job, how in ENDS:
            with pytest.raises(WorkerDied, match=f"of 'node' to outlive it, got: {how}; look for") as died:
                await asyncio.wait_for(blocking.call(job, context()), 5)
            assert (died.value.node, died.value.how, died.value.for_good) == ("node", how, False)
            assert (await blocking.call(Job("plain", "next"), context())).text == "next"
        assert not other.done()
        signal_file.touch()
        assert (await other).text == str(signal_file)

    runner.run(main())


def test_programs_that_a_process_started_end_with_it(runner, blocking, tmp_path):
    """S29: also where one holds its socket open, so that its end cannot be told by that."""
    pid_file = tmp_path / "pid"
    with pytest.raises(WorkerDied, match="exit code 3"):
        ask(runner, blocking, Job("leave child", str(pid_file)))
    stat = Path(f"/proc/{pid_file.read_text()}/stat")
    until = time.monotonic() + 5
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < until:
        time.sleep(0.01)
    assert time.monotonic() < until


def test_a_process_that_dies_between_calls_is_replaced_at_the_next(runner, blocking):
    async def main() -> None:
        answers = await asyncio.gather(*(blocking.call(Job("sleep", size=0), context()) for _ in range(2)))
        for answer in answers:
            os.kill(answer.pid, signal.SIGKILL)
        await asyncio.sleep(0.2)  # it has been noticed by then, else the next call would be lost with it
        assert (await blocking.call(Job("plain", "next"), context())).pid not in [answer.pid for answer in answers]

    runner.run(main())


def test_a_cancelled_call_of_code_that_blocks_ends_its_process(runner, blocking, monkeypatch):
    """S24, S28: such code cannot be stopped otherwise, so it has no time of grace."""
    monkeypatch.setattr("flow._processes.child.GRACE_S", 60)
    assert runner.run(cut(blocking, Job("sleep", size=60), 0.1)) < 20
    assert ask(runner, blocking, Job("plain", "next")).text == "next"


def test_a_cancelled_asynchronous_call_cleans_up_in_its_process(runner, acting, tmp_path):
    """S28: what was cancelled has ended when the call has."""
    before = {ask(runner, acting, Job("plain")).pid}
    marker = tmp_path / "marker"
    runner.run(cut(acting, Job("marked", str(marker), 30), 0.05))
    assert marker.read_text() == "clean"
    assert {ask(runner, acting, Job("plain")).pid} == before


def test_an_asynchronous_call_that_does_not_heed_the_cancel_loses_its_process(runner, acting):
    """Bounded: a second of grace, whatever further cancels come."""

    async def main() -> float:
        task = asyncio.create_task(acting.call(Job("stubborn", size=30), context()))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    assert 0.9 < runner.run(main()) < 10
    assert ask(runner, acting, Job("plain", "next")).text == "next"


def test_a_result_that_crosses_a_cancel_is_given_to_nobody(runner, acting):
    """Cancelled at any moment of a call, the next one gets its own answer."""

    async def main() -> int:
        crossed = 0
        pids = {
            answer.pid for answer in await asyncio.gather(*(acting.call(Job("sleep", size=0.05), context()) for _ in range(2)))
        }
        for number in range(60):
            task = asyncio.create_task(acting.call(Job("plain", f"cut {number}"), context()))
            for _ in range(number % 20):
                await asyncio.sleep(0)
            crossed += task.cancel()
            await asyncio.wait([task])
            answer = await acting.call(Job("plain", f"{number}"), context())
            assert (answer.text, answer.pid in pids) == (f"{number}", True)  # and no process was given up for it
        return crossed

    assert runner.run(main()) > 10


@pytest.mark.extra
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called")
def test_calls_work_on_another_loop():
    """uvloop forks in the way that JAX warns of once it is in use; what is started executes another program."""
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        crew = ProcessCrew("node", process_stages.block, Job, Report, 1)
        await crew.open()
        assert (await crew.call(Job("plain", "x" * 1_000_000), context())).text == "x" * 1_000_000
        with pytest.raises(WorkerDied, match="SIGKILL"):
            await crew.call(Job("kill"), context())
        assert await cut(crew, Job("sleep", size=30), 0.4) < 10
        await crew.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

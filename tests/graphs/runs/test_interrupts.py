"""Real signals to a real process."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]

ENDLESS = """
import asyncio
from flow import Context, Graph

async def slow(number: int, context: Context) -> int:
    await asyncio.sleep(0.02)
    return number

def keep(number: int, context: Context) -> None: ...

def endless() -> Graph:
    graph = Graph("endless")
    numbers = graph.source("numbers", range(10**9))
    slowly = graph.stage("slowly", slow, workers=4)
    kept = graph.sink("kept", keep)
    numbers >> slowly >> kept
    return graph
"""


HANGING = """
import asyncio, pathlib, threading
from flow import Context, Graph, Threads

def hang(number: int, context: Context) -> int:
    threading.Event().wait()
    return number

async def deaf(number: int, context: Context) -> int:
    if number == 9:
        pathlib.Path("stuck-" + context.node).touch()
    while True:
        try:
            await asyncio.sleep(0.02 if number < 9 else 1000)
            return number
        except asyncio.CancelledError:
            pass

async def elsewhere(number: int, context: Context) -> int:
    await asyncio.to_thread(threading.Event().wait)
    return number

def keep(number: int, context: Context) -> None: ...

def endless() -> Graph:
    graph = Graph("endless")
    for name, work, settings in [("hang", hang, {"placement": Threads()}), ("deaf", deaf, {}), MORE]:
        graph.source(name + " in", range(99)) >> graph.stage(name, work, **settings) >> graph.sink(name + " out", keep)
    return graph
"""
NO_MORE, TO_THREAD = '("slow", deaf, {})', '("elsewhere", elsewhere, {})'


GENERATING = """
import os, pathlib, subprocess
from graphs.own_program import OwnConfig, own_program
from stages.envs.custom import CustomEnv
from stages.envs.pool import EnvPool
from stages.envs.process_env import ProcessEnv
from stages.records import Task
from stages.rollout.config import EngineConfig

class Talking(CustomEnv):
    child = None

    def reset(self, task, key):
        if self.child is None:
            self.child = subprocess.Popen(["sleep", "1000"])
            for pid in (os.getpid(), self.child.pid):
                pathlib.Path(f"child-{pid}").touch()
        return task.prompt

    def step(self, message):
        return "go on"

def make(task):
    return Talking()

def talk(config: OwnConfig):
    tasks = [Task(str(number), "talk") for number in range(8)]
    engine = EngineConfig(slots=8, context_length=128, prefill_rows=2, prefill_chunk=32)
    return own_program("talk", config, tasks, EnvPool(lambda task: ProcessEnv(make), 2), engine=engine)
"""


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """No process of these tests outlives them, whatever it does."""
    killer = threading.Timer(60, lambda: [process.kill() for process in STARTED])
    killer.start()
    yield
    killer.cancel()
    for process in STARTED:
        process.kill()
        process.communicate()
    STARTED.clear()


STARTED: "list[subprocess.Popen[str]]" = []


def started(
    folder: Path, source: str = ENDLESS, command: Sequence[str] = ("run", "endless.py:endless", "--options.name", "it")
) -> "subprocess.Popen[str]":
    """A run that has begun to work."""
    (folder / "endless.py").write_text(source)
    command = [sys.executable, "-m", "graphs.cli", *command]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    STARTED.append(process)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("graph endless"):
            return process
    raise AssertionError("the run ended before it began")


def interrupted(process: "subprocess.Popen[str]", trace: Path, number: signal.Signals) -> str:
    """What a run says that is interrupted once it is at work."""
    until = time.monotonic() + 20
    while trace.stat().st_size < 5_000 and time.monotonic() < until:  # the handler is there once the graph is at work
        time.sleep(0.05)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    return output


@pytest.mark.parametrize(("number", "within"), [(signal.SIGINT, "10 s"), (signal.SIGTERM, "3 s")])
def test_an_interrupt_suspends_the_run_which_says_how_to_go_on(tmp_path: Path, number: signal.Signals, within: str) -> None:
    """S26. After SIGTERM half of the grace period is for what is under way. Counts go on."""
    run = tmp_path / "runs" / "it"
    command = ("run", "endless.py:endless", "--options.name", "it", "--options.grace-s", "6")
    output = interrupted(started(tmp_path, command=command), run / "run.pftrace", number)
    assert f"headrace: interrupted: attempts under way get {within} to end; interrupt again to stop at once" in output
    assert output.splitlines()[-1] == "go on with: headrace resume runs/it"
    before = json.loads((run / "summary.json").read_text())
    assert (before["status"], before["ledger_balanced"]) == ("suspended", True)
    assert before["stages"]["kept"]["taken"] > 0
    if number == signal.SIGINT:
        return
    interrupted(started(tmp_path, command=("resume", "runs/it")), run / "run.1.pftrace", number)
    after = json.loads((run / "summary.json").read_text())
    assert (after["status"], after["ledger_balanced"], after["attempts"]) == ("suspended", True, 2)
    assert after["stages"]["kept"]["taken"] > before["stages"]["kept"]["taken"]
    assert after["wall_s"] > before["wall_s"]


@pytest.mark.parametrize(("more", "stuck"), [(NO_MORE, 2), (TO_THREAD, 1)])
def test_a_second_interrupt_ends_a_run_at_once_whatever_hangs_in_it(tmp_path: Path, more: str, stuck: int) -> None:
    """S21, S26: a thread that never returns, a stage deaf to cancels, a thread of the loop's own that nobody can give up."""
    process = started(tmp_path, HANGING.replace("MORE", more))
    until = time.monotonic() + 40
    while len(list(tmp_path.glob("stuck-*"))) < stuck and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    told = "headrace: interrupted: attempts under way get 10 s to end; interrupt again to stop at once\n"
    assert told in iter(process.stdout.readline, "")
    time.sleep(0.7)  # two within half a second count as one
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert time.monotonic() - began < 9
    assert process.returncode == 130, output
    if more == NO_MORE:
        assert "Traceback" not in output
        last = [line for line in output.splitlines() if line.strip()][-2:]
        assert last[0] == "headrace: interrupted twice: stopped where it stood, attempts under way are lost"
        assert re.sub(r"py:\d+", "py:N", last[1]) == (
            "leftover tasks: deaf/0 in deaf (endless.py:N); slow/0 in deaf (endless.py:N); "
            "thread of hang in hang (endless.py:N)"
        )
    summary = json.loads((tmp_path / "runs" / "it" / "summary.json").read_text())
    assert (summary["status"], summary["ledger_balanced"]) == ("failed", True)
    assert summary["error"].startswith("Interrupted: interrupted twice")


def test_two_interrupts_while_an_engine_generates_leave_no_child_behind(tmp_path: Path) -> None:
    """S26: environments in processes of their own, each with a program that it started; the second one meets the shutdown."""
    (tmp_path / "talk.py").write_text(GENERATING)
    command = [sys.executable, "-m", "graphs.cli", "run", "talk.py:talk", "--options.name", "it", "--rl.steps", "9999",
               "--rl.sampling.max-turns", "1000", "--rl.trainer.row-length", "128"]  # fmt: skip
    hasty = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=hasty)
    STARTED.append(process)
    until = time.monotonic() + 50
    while len(children := list(tmp_path.glob("child-*"))) < 4 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(children) >= 4
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert any("interrupt again to stop at once" in line for line in process.stdout)
    time.sleep(0.7)  # two within half a second count as one
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert time.monotonic() - began < 12
    assert process.returncode == 130, output
    pids = [int(child.name.removeprefix("child-")) for child in tmp_path.glob("child-*")]
    until = time.monotonic() + 5
    while any(map(running, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert [pid for pid in pids if running(pid)] == []


ENDING = """
import os, signal, sys, threading, time
from graphs import cli

def asked_again():
    sys.stderr.write("ending\\n")
    sys.stderr.flush()
    threading.Event().wait(20)

def suspended(arguments=None):
    threading.Thread(target=asked_again).start()
    raise SystemExit(130)

cli.main = suspended
cli.process()
"""


def test_an_interrupt_of_a_process_that_is_about_to_end_ends_it_with_the_status_that_it_was_to_have(tmp_path: Path) -> None:
    """S26: a thread of somebody else's holds the interpreter, which no handler of a loop's hears any more."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENDING], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    STARTED.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ending\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=10)
    assert (process.returncode, output) == (130, "")


def running(pid: int) -> bool:
    """Whether there is a process, and no mere remains of one that nobody waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

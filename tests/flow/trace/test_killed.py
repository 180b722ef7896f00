"""A process that is killed leaves a trace that can be read, up to the last write."""

import os
import signal
import subprocess
import sys
import time

import pytest

from flow.trace import read_trace

RUN = """
import asyncio, sys
from flow import Context, Graph, Run
from flow.trace import PerfettoWriter

async def work(number: int, context: Context) -> int:
    with context.span("inside", number=number):
        await asyncio.sleep(0.002)
    if number == 200:
        print("ready", flush=True)
    return number

def forget(number: int, context: Context) -> None: ...

graph = Graph("killed")
_ = graph.source("numbers", range(10**9)) >> graph.stage("work", work, workers=4) >> graph.sink("end", forget)
with PerfettoWriter(sys.argv[1], max_bytes=int(sys.argv[2])) as recorder:
    asyncio.run(Run(graph.build(), recorder=recorder).finish())
"""


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [512_000_000, 400_000], ids=["one file", "many files"])
def test_of_a_run_that_was_killed_all_but_the_last_half_second_is_read(tmp_path, max_bytes):
    """S102: kill -9 of a real run in the middle of it, also where its trace fills several files."""
    command = [sys.executable, "-c", RUN, str(tmp_path / "run.pftrace"), str(max_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.0)  # of a real process: three writes
        os.kill(process.pid, signal.SIGKILL)
        killed_ns = time.monotonic_ns()
    assert process.returncode == -signal.SIGKILL
    trace = read_trace(tmp_path)
    inside = [each for each in trace.slices if each.name == "inside"]
    numbers = sorted(each.args["number"] for each in inside)
    assert numbers[-1] > 200
    files = len(list(tmp_path.iterdir()))
    if files == 1:
        told_ns = min(max(each.start_ns for each in inside if each.track == track) for track in {each.track for each in inside})
        early = sorted(each.args["number"] for each in inside if each.start_ns <= told_ns)
        assert early == list(range(len(early))), "nothing is missing up to the time that all workers told of"
    assert files == 1 or max_bytes < 1_000_000
    lost_s = (killed_ns - max(each.start_ns for each in inside)) / 1e9
    assert lost_s < 1.5, "half a second, and what a loaded machine takes to write"
    at_work = [each for each in trace.slices if each.end_ns is None and each.depth == 0]
    assert {trace.tracks[each.track].name for each in at_work} >= {f"work/{lane}" for lane in range(4)}, "these are open"


def test_a_killed_process_leaves_a_readable_file(tmp_path):
    """The same of the writer alone; what runs on shows as open."""
    code = f"""
import sys, time
from flow.trace import PerfettoWriter
with PerfettoWriter({str(tmp_path / "t")!r}) as writer:
    track = writer.track("stage")
    writer.begin(track, "run", time.monotonic_ns())
    for n in range(100_000_000):
        writer.begin(track, "work", time.monotonic_ns(), {{"n": n}})
        writer.end(track, time.monotonic_ns())
        if n == 3000:
            writer.flush()
            print("ready", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    trace = read_trace(tmp_path / "t")
    work = [s for s in trace.slices if s.name == "work"]
    assert [s.args["n"] for s in work] == list(range(len(work)))
    assert len(work) >= 3_000
    assert trace.slices[0].end_ns is None

"""Real signals to a real process."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

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


def started(folder: Path) -> "subprocess.Popen[str]":
    """A run that has begun to work."""
    (folder / "endless.py").write_text(ENDLESS)
    command = [sys.executable, "-m", "graphs.cli", "run", "endless.py:endless", "--options.name", "it"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("graph endless"):
            return process
    raise AssertionError("the run ended before it began")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_suspends_the_run_and_its_summary_says_so(tmp_path: Path, number: signal.Signals) -> None:
    """S26."""
    process = started(tmp_path)
    trace = tmp_path / "runs" / "it" / "run.pftrace"
    until = time.monotonic() + 20
    while trace.stat().st_size < 5_000 and time.monotonic() < until:  # the handler is there once the graph is at work
        time.sleep(0.05)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    summary = json.loads((tmp_path / "runs" / "it" / "summary.json").read_text())
    assert summary["status"] == "suspended"
    assert summary["ledger_balanced"] is True
    assert summary["stages"]["kept"]["taken"] > 0

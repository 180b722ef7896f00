"""Whatever ends an episode, nothing of its tools outlives it."""

import asyncio
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from flow import Failed
from flow.testing import context
from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.policy import Sample
from stages.records import Message, Status, Task, ToolCall
from stages.text.compact import CompactChat
from stages.tools.methods import MethodTools
from stages.tools.sandbox import Sandbox
from stages.tools.scratch import MARK
from stages.tools.tool import BrokenToolError

PROGRAM = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
open("up", "w")
time.sleep({seconds})
"""


class Shell:
    """Runs a program that leaves a process behind."""

    def __init__(self):
        self._sandbox = Sandbox()
        self._entered = False

    async def run(self, how: str) -> str:
        """Run it."""
        if not self._entered:
            self._entered = True
            await self._sandbox.__aenter__()
        program = PROGRAM.format(seconds=0 if how in ("end", "break") else 600)
        finished = await self._sandbox.run(["/usr/bin/env", "python3", "-S", "-c", program])
        if how == "break":
            raise BrokenToolError("no connection")
        return str(finished.status)

    async def close(self):
        if self._entered:
            await self._sandbox.__aexit__(None, None, None)


class OneCall:
    """Calls the tool once, then answers."""

    context_length = 200

    def __init__(self, chat, how):
        self._turns = [
            chat.write(Message("assistant", "", (ToolCall("c", "run", {"how": how}),))),
            chat.write(Message("assistant", "done")),
        ]

    async def sample(self, request):
        ids = self._turns[request.key[-1]]
        return Sample(ids, np.full(len(ids), -0.5, np.float32), np.zeros(len(ids), np.int32), "stop")

    def release(self, session): ...

    def abort(self, session): ...


def leftovers():
    """Processes of sandboxes of ours, their folders, our descriptors and threads."""
    ours = f"{MARK}={os.getpid()}-".encode()
    processes = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            processes += [entry.parent.name] if ours in entry.read_bytes() else []
        except OSError:
            continue
    folders = [path.name for path in Path(tempfile.gettempdir()).glob(f"headrace-sandboxes-*/{os.getpid()}-*")]
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("waitpid")]
    return processes, folders, threads, set(os.listdir("/proc/self/fd"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("end", Status.FINISHED),
        ("break", Status.TOOL_ERROR),
        ("hang", Status.TIMED_OUT),
        ("cancel", None),
    ],
)
def test_no_process_file_or_descriptor_outlives_an_episode(how, status):
    """S28, S29, S31."""
    tools = MethodTools(Shell, deadline_s=None)
    chat = CompactChat(tools.specs)
    limits = TimeLimits(step_s=1.0 if how == "hang" else 30)
    stage = Episodes(OneCall(chat, how), chat, ToolAgent(), lambda task: ToolEnv([tools]), SamplingConfig(), limits)
    before = leftovers()

    async def run():
        episode = asyncio.create_task(stage(Task("t", "go"), context()))
        if how == "cancel":
            await asyncio.sleep(0.2)
            episode.cancel()
            await asyncio.wait([episode])
            return None
        return await episode

    ended = asyncio.run(run())
    episode = ended.value if isinstance(ended, Failed) else ended
    assert (None if episode is None else episode.status) == status
    assert leftovers() == before

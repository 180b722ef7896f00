"""An environment in a process: what crashes or hangs there is replaced, and nothing outlives it."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from flow.by_path import load_by_path
from stages.envs.custom import CustomEnv
from stages.envs.environment import Opening
from stages.envs.process_env import ProcessEndedError, ProcessEnv, in_process
from stages.records import Message, Task, ToolCall
from stages.tools.calculator import calculator_tool
from stages.tools.context import UndeclaredPoolError, tool_context_with
from stages.tools.tool import BrokenToolError

ROOT = Path(__file__).parents[3]
TASK, KEY = Task("t", "go"), (0, 0, 0, 0)


class Does(CustomEnv):
    """Does what it is told, and leaves a child behind."""

    def reset(self, task, key):
        self.child = subprocess.Popen(["sleep", "600"])
        return Opening((Message("user", f"{os.getpid()} {self.child.pid}"),), (calculator_tool(),))

    def step(self, message):
        match message.content:
            case "crash":
                os._exit(3)
            case "hang":
                time.sleep(600)
            case "lock":
                return [Message("user", threading.Lock())]
            case "raise":
                raise BrokenToolError("down")
        return message.content.upper()

    def score(self):
        return 1

    def close(self):
        Path(os.environ["CLOSED"]).write_text("closed")


def alive(process: int) -> bool:
    """Whether a process runs. One that is dead and not yet reaped does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(*processes: int) -> bool:
    """Whether all end, at the latest in a moment: a killed process takes some time to die."""
    for _ in range(200):
        if not any(map(alive, processes)):
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def closed(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOSED", str(tmp_path / "closed"))
    # Processes find this module as they find any: by its name.
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "does_as_told.py").write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(str(folder))
    return tmp_path / "closed"


def make(task):
    import does_as_told

    return does_as_told.Does()


@pytest.fixture
def making(closed):
    import does_as_told

    yield does_as_told.make
    del sys.modules["does_as_told"]


async def begun(env):
    opening = await env.reset(TASK, KEY)
    return tuple(map(int, opening.messages[0].content.split()))


@pytest.mark.slow
def test_it_does_what_it_does_here_and_closes_with_its_children(making, closed):
    """S29, S31: closed by itself first, then the group is killed."""

    async def main():
        env = ProcessEnv(making)
        process, child = await begun(env)
        assert process != os.getpid()
        opening = await env.reset(TASK, KEY)
        assert (opening.tools[0].name, opening.tools[0].parameters) == ("calculator", calculator_tool().parameters)
        assert (await env.step(Message("assistant", "loud"))).messages[0].content == "LOUD"
        with pytest.raises(TypeError, match=r"expected an answer that can go to another process; got Reply: cannot pickle"):
            await env.step(Message("assistant", "lock"))
        with pytest.raises(BrokenToolError, match="down"):
            await env.step(Message("assistant", "raise"))
        assert await env.score() == {"reward": 1}
        assert not closed.exists()
        await env.close()
        assert closed.read_text() == "closed"
        assert gone(process, child, int(opening.messages[0].content.split()[1]))

    asyncio.run(main())


@pytest.mark.slow
def test_a_crash_is_told_with_its_exit_code_and_a_hang_is_cut_short(making):
    """S29: the children of both are gone too."""

    async def main():
        crashed, hung = ProcessEnv(making), ProcessEnv(making)
        processes = [*await begun(crashed), *await begun(hung)]
        with pytest.raises(ProcessEndedError, match="end of the environment's process, exit code 3, in step"):
            await crashed.step(Message("assistant", "crash"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hung.step(Message("assistant", "hang")), 0.05)
        began = time.monotonic()
        await crashed.close()
        await hung.close()
        assert time.monotonic() - began < 2
        assert gone(*processes)

    asyncio.run(main())


@pytest.mark.slow
def test_it_ends_with_its_children_when_the_parent_is_killed(making, closed):
    """S29: SIGKILL, while the environment hangs in a call."""
    script = (
        "import asyncio, does_as_told as d\n"
        "async def main():\n"
        "    env = d.ProcessEnv(d.make)\n"
        "    print(*await d.begun(env), flush=True)\n"
        "    await env.step(d.Message('assistant', 'hang'))\n"
        "if __name__ == '__main__':\n    asyncio.run(main())\n"
    )
    file = closed.parent / "parent.py"
    file.write_text(script)
    path = os.pathsep.join([str(closed.parent / "modules"), str(ROOT)])
    parent = subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
    assert parent.stdout is not None
    processes = list(map(int, parent.stdout.readline().split()))
    assert all(map(alive, processes))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert len(processes) == 2
    assert gone(*processes)


OWN = """
import time

from stages.envs.tool_env import ToolEnv
from stages.tools.context import tool_context
from stages.tools.function import FunctionTool


def long(count: int) -> str:
    "Gives text."
    return "x" * count


def late(seconds: float) -> str:
    "Takes its time."
    time.sleep(seconds)
    return "late"


def make(task):
    limits = {"pool": "desks", "rate": "starts"}
    tools = [FunctionTool(long, max_output_tokens=64, **limits), FunctionTool(late, **limits), FunctionTool(other)]
    return ToolEnv(tools, parallel=True)


def other(count: int) -> str:
    "Not declared."
    return tool_context().key
"""


@pytest.fixture
def own_make(tmp_path):
    """A function of a file that was loaded by its path, under a name that no import finds."""
    (tmp_path / "file.py").write_text(OWN)
    load_by_path({"_loaded_by_path": str(tmp_path / "file.py")})
    yield sys.modules["_loaded_by_path"].make
    del sys.modules["_loaded_by_path"]


class Desk:
    """Records what is held; grants all that it knows."""

    def __init__(self):
        self.held, self.most, self.rows = Counter(), Counter(), []

    @contextlib.asynccontextmanager
    async def permit(self, needs):
        if "none" in needs:
            raise UndeclaredPoolError("expected a pool that is declared, got none")
        self.held.update(needs)
        self.most |= self.held
        try:
            yield
        finally:
            self.held.subtract(needs)


@pytest.mark.slow
def test_tools_in_a_process_have_the_permits_the_counter_and_the_audit_log_of_the_run(own_make):
    """Text of 200 tokens, a token a character, is cut to 64; two calls side by side hold two units; a step that is cut short
    holds none any more. Each call knows the name of its effects."""

    def calls(*named):
        return Message("assistant", "", tuple(ToolCall(f"c{i}", name, args) for i, (name, args) in enumerate(named)))

    async def main():
        desk, env = Desk(), ProcessEnv(own_make)
        with tool_context_with(permit=desk.permit, count_tokens=len, audit=desk.rows.append, attempt=3, key="mine/0"):
            opening = await env.reset(TASK, KEY)
            assert opening.tools[0].needs == {"desks": 1, "starts": 1}
            reply = await env.step(calls(("long", {"count": 200}), ("late", {"seconds": 0.1}), ("other", {"count": 200})))
            cut, late, other = (message.content for message in reply.messages)
            assert (len(cut), cut[-18:], late, other) == (64, " [cut: 200 tokens]", "late", "mine/0/0.2")
            assert (desk.most, +desk.held) == ({"desks": 2, "starts": 2}, {})
            told = {(row["call"], row["outcome"]): (row["attempt"], row["tool"]) for row in desk.rows}
            assert told["c0", "started"] == told["c0", "answer"] == (3, "long")
            assert len(desk.rows) == len(told) == 6
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(env.step(calls(("late", {"seconds": 60}))), 0.1)
            assert +desk.held == {}
        await env.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_pool_that_the_graph_lacks_is_told_as_such_out_of_a_process(tmp_path):
    (tmp_path / "file.py").write_text(OWN.replace('"desks"', '"none"'))
    load_by_path({"_lacking": str(tmp_path / "file.py")})

    async def main():
        env = ProcessEnv(sys.modules["_lacking"].make)
        with tool_context_with(permit=Desk().permit):
            await env.reset(TASK, KEY)
            with pytest.raises(UndeclaredPoolError, match="expected a pool that is declared"):
                await env.step(Message("assistant", "", (ToolCall("c", "long", {"count": 1}),)))
        await env.close()

    asyncio.run(main())
    (tmp_path / "file.py").write_text("raise OSError('not today')")

    async def broken():
        env = ProcessEnv(sys.modules["_lacking"].make)
        with pytest.raises(OSError, match="not today"):
            await env.reset(TASK, KEY)
        await env.close()

    asyncio.run(broken())
    del sys.modules["_lacking"]


@pytest.mark.parametrize("wrap", [ProcessEnv, in_process])
def test_what_a_process_could_not_import_is_refused_at_once(wrap):
    with pytest.raises(TypeError, match=r"expected a function that a process can import, got <function .*lambda"):
        wrap(lambda task: Does())

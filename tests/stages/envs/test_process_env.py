"""An environment in a process: what crashes or hangs there is replaced, and nothing outlives it."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stages.envs.custom import CustomEnv
from stages.envs.environment import Opening
from stages.envs.process_env import ProcessEndedError, ProcessEnv, in_process
from stages.records import Message, Task
from stages.tools.calculator import calculator_tool
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


@pytest.mark.parametrize("wrap", [ProcessEnv, in_process])
def test_what_a_process_could_not_import_is_refused_at_once(wrap):
    with pytest.raises(TypeError, match=r"expected a function that a process can import, got <function .*lambda"):
        wrap(lambda task: Does())

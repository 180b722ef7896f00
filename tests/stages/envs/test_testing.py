"""Each clause of ``check_env`` finds an environment that breaks it, and tells the turns; sound ones pass."""

import asyncio
import random
import subprocess
import time

import pytest

from stages.envs.custom import CustomEnv, earned, over
from stages.envs.environment import Opening, Reply
from stages.envs.process_env import ProcessEnv
from stages.envs.task_env import TaskEnv
from stages.envs.testing import check_env
from stages.envs.tool_env import ToolEnv
from stages.records import Message, Task
from stages.tools.calculator import calculator_tool

TASKS = [Task("a", "1+1", "2"), Task("b", "3*3", "9")]


class Echo(CustomEnv):
    """Sound: repeats what was said, three times."""

    def reset(self, task, key):
        self.left = 3
        return task.prompt

    def step(self, message):
        self.left -= 1
        return over() if self.left <= 0 else message.content

    def score(self):
        return {"left": float(self.left)}


class Raises(Echo):
    def step(self, message):
        return str(int(message.content))


class Hangs(Echo):
    async def score(self):
        await asyncio.sleep(60)


class Empty(Echo):
    async def reset(self, task, key):
        return Opening(())


class Silent(Echo):
    async def step(self, message):
        return Reply((Message("tool", "6", call_id="nobody's"),))


class GoesOn(Echo):
    def step(self, message):
        self.left -= 1
        return over() if self.left == 2 else "on"


class Priceless(Echo):
    def step(self, message):
        return earned(float("nan"), "on")


class Infinite(Echo):
    def score(self):
        return {"left": float("inf")}


class Blocks(Echo):
    async def step(self, message):
        time.sleep(0.08)  # noqa: ASYNC251 - the fault
        return over()


class Chance(Echo):
    def step(self, message):
        return str(random.random())


class Remembers(Echo):
    seen = 0

    def reset(self, task, key):
        self.seen += 1
        super().reset(task, key)
        return f"{task.prompt}, for the {self.seen}. time"


class Leaks(Echo):
    def reset(self, task, key):
        self.file = open(__file__)  # noqa: SIM115 - the fault
        return super().reset(task, key)


class LeavesProcess(Echo):
    def reset(self, task, key):
        self.process = subprocess.Popen(["sleep", "60"])
        return super().reset(task, key)


class LeavesTask(Echo):
    async def reset(self, task, key):
        self.task = asyncio.create_task(asyncio.sleep(60))
        return super().reset(task, key)


class Deaf(Echo):
    async def step(self, message):
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            return over()
        return "on"


class HoldsOn(Echo):
    """Leaves a file open only where a reset is cut short."""

    async def reset(self, task, key):
        self.file = open(__file__)  # noqa: SIM115, ASYNC230 - the fault
        await asyncio.sleep(0.001)
        self.file.close()
        return super().reset(task, key)


class CannotClose(Echo):
    def close(self):
        raise OSError("busy")


@pytest.mark.parametrize("make", [TaskEnv, lambda: ToolEnv([calculator_tool()]), Echo], ids=["task", "tool", "own"])
def test_sound_environments_pass(make):
    check_env(lambda task: make(), TASKS, pooled=True, examples=6)


@pytest.mark.parametrize(
    ("kind", "clause", "got"),
    [
        (Raises, "raises", "ValueError: invalid literal for int"),
        (Hangs, "returns", "nothing"),
        (Empty, "opening", "none"),
        (Silent, "replies", "answers to"),
        (Priceless, "replies", "nan"),
        (GoesOn, "over", "an answer, as if it went on"),
        (Infinite, "score", "inf"),
        pytest.param(Blocks, "blocks", "ms, in each of 3 episodes", marks=pytest.mark.slow),
        (Chance, "repeatable", "Reply"),
        (Remembers, "pooled", "for the 2. time"),
        (LeavesTask, "closes", "Task pending"),
        (Deaf, "cancellation", ""),
        (CannotClose, "raises", "OSError: busy"),
    ],
)
def test_a_clause_that_does_not_hold_is_told(kind, clause, got):
    check = {"within_s": 0.3, "pooled": kind is Remembers, "examples": 1 if kind is Blocks else 4, "max_turns": 4}
    with pytest.raises(AssertionError) as broken:
        check_env(lambda task: kind(), TASKS, **check)
    lines = str(broken.value).splitlines()
    assert lines[0].startswith(f"the environment breaks its contract: {clause}  (task 'a', key (0, ")
    assert got in next(line for line in lines if line.startswith("     got"))
    assert lines[-1].startswith("     to do")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Leaks, HoldsOn, LeavesProcess])
def test_what_outlives_an_environment_is_found(kind):
    """S28, S31: files and processes, also where only a cancelled reset leaves them."""
    kept = []

    def make(task):
        kept.append(kind())  # else a collection of garbage closes the file
        return kept[-1]

    with pytest.raises(AssertionError, match=r"contract: (closes|cancellation)(.|\n)*nothing left of it once"):
        check_env(make, TASKS, examples=2)
    for env in kept:
        if kind is LeavesProcess:
            env.process.kill()
            env.process.wait()
        elif hasattr(env, "file"):
            env.file.close()


def test_a_report_has_the_turns_that_led_there():
    with pytest.raises(AssertionError) as broken:
        check_env(lambda task: Raises(), TASKS, says=lambda *args: Message("assistant", ("1", "2x")[args[-1]]))
    assert "     turns     '1'\n               '2x'\n     expected  no error of step\n" in str(broken.value)


def test_no_task_is_refused():
    with pytest.raises(ValueError, match="expected at least one task"):
        check_env(lambda task: TaskEnv(), [])


@pytest.mark.soak
def test_an_environment_in_a_process_keeps_the_contract_too():
    check_env(lambda task: ProcessEnv(make_task_env), TASKS, examples=1)


def make_task_env(task):
    return TaskEnv()

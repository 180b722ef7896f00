"""Exits out of code that is not ours: each is the failure of one call, and the loop goes on."""

import asyncio
import threading

import pytest

from flow import Failed, Gathered
from flow.testing import context
from stages.agents.custom import CustomAgent
from stages.agents.guards import TimeLimits
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.custom import CustomEnv, over
from stages.envs.pool import EnvPool
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.exits import ExitRaisedError, exits_as_errors
from stages.records import Episode, Message, Status, Task, ToolCall
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.tools.function import FunctionTool
from stages.tools.methods import MethodTools

CHAT = CompactChat([calculator_tool()])
EXITS = (SystemExit("bye"), KeyboardInterrupt(), GeneratorExit(), BaseExceptionGroup("all", [SystemExit()]))


def play(make, agent=None, limits=None):
    async def made(task):
        return make()

    policy = ScriptedPolicy(CHAT, ["6"])
    stage = Episodes(
        policy, CHAT, agent or ToolAgent(), made, SamplingConfig(max_tokens_per_turn=16), limits or TimeLimits(close_s=2)
    )
    return asyncio.run(asyncio.wait_for(stage(Task("t", "2*3", "6"), context()), 20))


def asked(tools, name):
    async def run():
        env = ToolEnv(tools)
        await env.reset(Task("t", "2*3"), (0, 0, 0, 0))
        return (await env.step(Message("assistant", "", (ToolCall("c0", name, {}),)))).messages[0].content

    return asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize("error", EXITS, ids=repr)
def test_an_exit_of_a_plain_tool_is_an_answer(error):
    """S30."""

    def leave() -> str:
        """Leave."""
        raise error

    assert asked([FunctionTool(leave)], "leave").startswith(f"error: {type(error).__name__}")


@pytest.mark.parametrize("error", [error for error in EXITS if not isinstance(error, KeyboardInterrupt)], ids=repr)
def test_an_exit_of_a_tool_on_the_loop_is_an_answer(error):
    async def leave() -> str:
        """Leave."""
        raise error

    assert asked([FunctionTool(leave)], "leave").startswith(f"error: {type(error).__name__}")


class Leaving(CustomEnv):
    """Leaves in one of its methods."""

    def __init__(self, where, error):
        self.where, self.error = where, error
        self.leave("__init__")

    def leave(self, here):
        if here == self.where:
            raise self.error

    def reset(self, task, key):
        self.leave("reset")
        return task.prompt

    def step(self, message):
        self.leave("step")
        return over()

    def score(self):
        self.leave("score")
        return 1.0

    def close(self):
        self.leave("close")


class LeavingOnLoop(Leaving):
    async def reset(self, task, key):
        return super().reset(task, key)

    async def step(self, message):
        return super().step(message)

    async def score(self):
        return super().score()

    async def close(self):
        super().close()


@pytest.mark.parametrize("kind", [Leaving, LeavingOnLoop])
@pytest.mark.parametrize("where", ["__init__", "reset", "step", "score"])
def test_an_exit_of_an_environment_fails_its_episode(kind, where):
    failed = play(lambda: kind(where, SystemExit("bye")))
    assert isinstance(failed, Failed)
    assert failed.value.status is Status.ENVIRONMENT_ERROR
    assert failed.value.error.endswith("raised ExitRaisedError: SystemExit: bye")


@pytest.mark.parametrize("kind", [Leaving, LeavingOnLoop])
def test_an_exit_of_a_close_is_told_and_changes_nothing(kind):
    episode = play(lambda: kind("close", SystemExit("bye")))
    assert (episode.status, episode.parts) == (Status.FINISHED, {"reward": 1.0})
    assert episode.error == "closing the environment raised ExitRaisedError: SystemExit: bye"


def test_an_exit_of_a_close_in_a_pool_is_logged(caplog):
    pool = EnvPool(lambda task: LeavingOnLoop("close", SystemExit("bye")), 1)

    async def run():
        env = await pool.take(Task("t", "2*3"))
        await env.close()
        await pool.close()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert "could not be closed: ExitRaisedError('SystemExit: bye')" in caplog.text


class Held:
    """Tools whose close leaves, or never returns."""

    end = threading.Event()
    leaves = False

    def calculator(self, expression: str) -> str:
        """Ping.

        Args:
            expression: any.
        """
        return "pong"

    def close(self):
        if self.leaves:
            raise SystemExit("bye")
        self.end.wait(60)


def test_a_close_of_tools_that_leaves_or_hangs_does_not_hold_the_episode(monkeypatch):
    """S31: within ``close_s``, though nothing can stop the thread."""
    hung = play(lambda: ToolEnv([MethodTools(Held)]), limits=TimeLimits(close_s=0.05))
    Held.end.set()
    assert hung.error == "closing the environment took over 0.05 s"
    monkeypatch.setattr(Held, "leaves", True)
    assert play(lambda: ToolEnv([MethodTools(Held)])).error.endswith("raised ExitRaisedError: SystemExit: bye")


def test_an_exit_of_a_reward_fails_its_member():
    def leave(episode):
        raise SystemExit("bye")

    episode = play(lambda: Leaving(None, None))
    assert isinstance(episode, Episode)
    group = asyncio.run(Rewards({"mine": (leave, 1.0)})(Gathered(0, (episode,), (), "full"), context()))
    assert group.episodes[0].error == "reward 'mine': ExitRaisedError: SystemExit: bye"


def test_an_exit_of_an_agent_is_raised_like_any_mistake_of_it():
    class Quitting(CustomAgent):
        async def converse(self, talk):
            raise SystemExit("bye")

    with pytest.raises(ExitRaisedError, match="SystemExit: bye"):
        play(lambda: Leaving(None, None), Quitting())


def test_an_interrupt_on_the_main_thread_and_a_cancellation_go_on():
    def leave(error):
        with exits_as_errors():
            raise error

    for error in (KeyboardInterrupt(), asyncio.CancelledError(), OSError("no")):
        with pytest.raises(type(error)):
            leave(error)

"""A secret that an episode has used is in no word of it, whoever used it."""

import asyncio
import json
import sys

import pytest

from flow import Failed, Gathered
from flow.by_path import load_by_path
from flow.testing import context
from stages.agents.custom import CustomAgent
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.custom import CustomEnv, cut, over
from stages.envs.pool import EnvPool
from stages.envs.process_env import ProcessEnv
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.records import Message, Task
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.tools.credentials import Credentials, Uses, blanked, uses_into
from stages.tools.methods import MethodTools

CHAT = CompactChat([calculator_tool()])
SECRET = "S3CR\n\"E'T\\/é x"
KEYS = Credentials({"api": SECRET})
TASK = Task("t", "2*3", "6")


def leaks(text):
    """Whether any piece of the secret is in a text, however it is written there."""
    return any(piece in text for piece in ("S3CR", "E'T", "E\\'T"))


class Telling(CustomEnv):
    """Says or raises a secret somewhere; plain methods, so in a thread of its own."""

    def __init__(self, where):
        self.where = where
        self.at("make")

    def at(self, here):
        if here == self.where:
            raise KeyError(f"{'x' * 290} {KEYS.get('api')}")

    def reset(self, task, key):
        self.at("reset")
        return KEYS.get("api") if self.where == "opening" else task.prompt

    def step(self, message):
        self.at("step")
        if self.where == "reason":
            return cut(f"denied for {KEYS.get('api')}")
        return over(KEYS.get("api") if self.where == "reply" else None)

    def score(self):
        self.at("score")
        return {KEYS.get("api"): "no number"} if self.where == "parts" else 1.0

    def close(self):
        self.at("close")


def play(make, agent=None):
    stage = Episodes(ScriptedPolicy(CHAT, ["6"]), CHAT, agent or ToolAgent(), make, SamplingConfig(max_tokens_per_turn=16))

    async def run():
        async with stage:
            return await stage(TASK, context())

    return asyncio.run(run())


WHERES = ["make", "reset", "step", "reply", "reason", "score", "parts", "close"]


@pytest.mark.parametrize("where", WHERES)
def test_no_word_of_an_episode_has_a_secret_that_its_environment_used(where):
    """S32, all of an environment: its messages, reasons and errors, a cut through the secret included."""
    got = play(lambda task: Telling(where))
    episode = got.value if isinstance(got, Failed) else got
    assert not leaks(repr(got))
    assert not leaks(f"{episode.error} {[message.content for message in episode.messages]}")


class Logged:
    """Tools that log in and out."""

    def calculator(self, expression: str) -> str:
        """Calculate.

        Args:
            expression: anything.
        """
        return expression

    def close(self):
        raise OSError(f"cannot log out with {KEYS.get('api')}")


def test_a_secret_is_in_no_error_of_a_close_of_tools():
    episode = play(lambda task: ToolEnv([MethodTools(Logged)]))
    assert not leaks(repr(episode))
    assert episode.error == "closing the environment raised OSError: cannot log out with [credential api]"


class Looking(CustomAgent):
    """Looks at how the conversation begins."""

    async def converse(self, talk):
        (message,) = talk.setting.opening.messages
        raise OSError(message.content)


def test_the_model_reads_no_secret():
    with pytest.raises(OSError, match=r"^\[credential api\]$"):
        play(lambda task: Telling("opening"), Looking())


def test_an_environment_that_is_used_again_is_still_blanked():
    class Keeping(CustomEnv):
        def __init__(self):
            self.key = KEYS.get("api")

        def reset(self, task, key):
            return f"my key is {self.key}"

        def step(self, message):
            return over()

    pool = EnvPool(lambda task: Keeping(), 1)
    stage = Episodes(ScriptedPolicy(CHAT, ["6"]), CHAT, Looking(), pool, SamplingConfig())

    async def run():
        async with stage:
            for _ in range(2):
                with pytest.raises(OSError, match=r"^my key is \[credential api\]$"):
                    await stage(TASK, context())

    asyncio.run(run())
    assert pool.num_made == 1


def test_what_a_pool_logs_of_a_close_has_no_secret(caplog):
    class Closing(Telling):
        async def close(self):
            super().close()

    play(EnvPool(lambda task: Closing("close"), 1))
    assert "an idle environment of a pool could not be closed: RuntimeError" in caplog.text
    assert "[credential api]" in caplog.text
    assert not leaks(caplog.text)


def test_an_error_of_an_agent_has_no_secret():
    class Judging(CustomAgent):
        async def converse(self, talk):
            raise OSError(f"denied for {KEYS.get('api')}")

    with pytest.raises(RuntimeError, match=r"denied for \[credential api\]"):
        play(lambda task: Telling(None), Judging())


def test_an_error_of_a_reward_has_no_secret():
    def judge(episode):
        raise KeyError(KEYS.get("api"))

    group = asyncio.run(
        Rewards({"mine": (judge, 1.0)})(Gathered(0, (play(lambda task: Telling(None)),), (), "full"), context())
    )
    assert group.episodes[0].error == "reward 'mine': KeyError: '[credential api]'"


TELLERS = f"""
from stages.envs.custom import CustomEnv
from stages.tools.credentials import Credentials

KEYS = Credentials({{"api": {SECRET!r}}})


class Telling(CustomEnv):
    def reset(self, task, key):
        return KEYS.get("api")

    def step(self, message):
        raise KeyError(KEYS.get("api"))


def opening_teller(task):
    return Telling()


class Silent(Telling):
    def reset(self, task, key):
        return task.prompt


def step_teller(task):
    return Silent()
"""


@pytest.fixture
def tellers(tmp_path):
    (tmp_path / "tellers.py").write_text(TELLERS)
    load_by_path({"_tellers": str(tmp_path / "tellers.py")})
    yield sys.modules["_tellers"]
    del sys.modules["_tellers"]


@pytest.mark.slow
def test_no_secret_leaves_the_process_of_an_environment(tellers):
    """The parent never saw it used."""

    async def run(make):
        env = ProcessEnv(make)
        try:
            opening = await env.reset(TASK, (0, 0, 0, 0))
            return opening, await env.step(Message("assistant", "6"))
        except Exception as error:
            return error
        finally:
            await env.close()

    async def both():
        return await asyncio.gather(run(tellers.opening_teller), run(tellers.step_teller))

    told = asyncio.run(both())
    assert not leaks(repr(told))
    assert "[credential api]" in repr(told[0])
    assert "[credential api]" in repr(told[1])


@pytest.mark.parametrize(
    "written",
    [
        repr(SECRET),
        repr(f"'{SECRET}"),
        repr(f'"{SECRET}'),
        str(KeyError(SECRET)),
        ascii(SECRET),
        json.dumps(SECRET),
        json.dumps({"key": SECRET}, ensure_ascii=False),
        json.dumps(json.dumps(SECRET)),
        repr(json.dumps(SECRET)),
        "https://host/?key=S3CR%0A%22E%27T%5C%2F%C3%A9+x",
        "https://host/S3CR%0A%22E%27T%5C/%C3%A9%20x",
    ],
)
def test_a_secret_is_found_also_where_it_is_escaped(written):
    with uses_into(Uses({SECRET: "api"})):
        assert "[credential api]" in blanked(written)
        assert not leaks(blanked(written))


def test_two_secrets_of_one_name_are_both_blanked():
    with uses_into(Uses({})):
        text = Credentials({"api": "first-1"}).get("api") + Credentials({"api": "second-2"}).get("api")
        assert blanked(text) == "[credential api][credential api]"

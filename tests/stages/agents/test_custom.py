"""An agent of one's own is one method; budgets and the record are kept whatever it does."""

import asyncio

import pytest

from stages.agents.agent import Ending, Setting
from stages.agents.custom import CustomAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.environment import Opening
from stages.envs.task_env import TaskEnv
from stages.records import Message, Status
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat
from stages.text.transcript import Transcript

CHAT = CompactChat()


class CheckTwice(CustomAgent):
    async def converse(self, talk):
        talk.open()
        await talk.sample()
        talk.hear([Message("user", "sure?")])
        await talk.step(await talk.sample())


class Endless(CustomAgent):
    async def converse(self, talk):
        talk.open()
        while True:
            await talk.sample()
            talk.hear([Message("user", "on")])


class GivesUp(CustomAgent):
    async def converse(self, talk):
        return Ending(Status.TRUNCATED_TURNS, "no idea")


def hold(agent, *said, **sampling):
    transcript = Transcript()
    policy = ScriptedPolicy(CHAT, said or ["6"], context_length=sampling.pop("context_length", 100))
    opening = Opening((Message("user", "2*3"),))
    setting = Setting(policy, CHAT, TaskEnv(), opening, SamplingConfig(**sampling), (0, 0, 0, 0), "s")
    return asyncio.run(agent.run(setting, transcript)), transcript


def test_an_agent_says_what_is_sampled_and_who_hears_it():
    ending, transcript = hold(CheckTwice(), "5", "6")
    assert ending.status is Status.FINISHED
    assert CHAT.decode(transcript.ids()) == "<|bos|><|user|>2*3<|assistant|>5<|end|><|user|>sure?<|assistant|>6<|end|>"
    assert CHAT.decode(transcript.ids()[transcript.mask()]) == "5<|end|>6<|end|>"


@pytest.mark.parametrize(
    ("budget", "status", "reason"),
    [
        ({"max_turns": 3}, Status.TRUNCATED_TURNS, "no answer in 3 turns"),
        ({"context_length": 20}, Status.TRUNCATED_LENGTH, "the reply to turn 3 is longer than what is left of the context"),
        ({"max_tokens_per_episode": 5, "max_turns": 9}, Status.TRUNCATED_LENGTH, "turn 3 was cut after 19 tokens"),
    ],
)
def test_budgets_end_an_agent_that_would_go_on_for_ever(budget, status, reason):
    """S34."""
    ending, transcript = hold(Endless(), **budget)
    assert (ending.status, ending.reason) == (status, reason)
    assert len(transcript) <= budget.get("context_length", 100)


def test_an_agent_may_say_how_it_ended():
    assert hold(GivesUp())[0] == Ending(Status.TRUNCATED_TURNS, "no idea")

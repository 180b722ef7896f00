import asyncio

import numpy as np
import pytest

from stages.agents.agent import Setting
from stages.agents.conversation import in_call_order
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import Opening, Reply
from stages.policy import Sample
from stages.records import Message, Status, ToolCall
from stages.text.compact import CompactChat
from stages.text.transcript import Transcript
from stages.tools.calculator import calculator_tool

CHAT = CompactChat([calculator_tool()])
TURN = Message("assistant", "", (ToolCall("w", "weather", {}), ToolCall("t", "time", {})))
W, T = Message("tool", "sunny", call_id="w"), Message("tool", "noon", call_id="t")
NOTE = Message("user", "hurry")


class Parrot:
    """Says the same turn each time."""

    context_length = 200

    def __init__(self, turn):
        self.ids = turn

    async def sample(self, request):
        count = len(self.ids)
        return Sample(self.ids, np.full(count, -0.1, np.float32), np.zeros(count, np.int32), "stop")

    def release(self, session):
        pass

    def abort(self, session):
        pass


class Replying:
    """Answers with the replies it was made with."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.heard = []

    async def step(self, message):
        self.heard.append(message)
        return self.replies.pop(0)


def converse(agent, turn, env, max_turns=4):
    transcript = Transcript()
    sampling = SamplingConfig(max_turns=max_turns)
    setting = Setting(Parrot(turn), CHAT, env, Opening((Message("user", "2*3"),)), sampling, (0, 0, 0, 0), "s")
    return asyncio.run(agent.run(setting, transcript)), transcript


def test_replies_are_matched_to_calls_by_id_and_put_in_call_order():
    """S50."""
    assert in_call_order(TURN, (NOTE, T, W)) == (W, T, NOTE)


@pytest.mark.parametrize("replies", [(W,), (W, T, T), (W, Message("tool", "x", call_id="z")), (W, T, Message("tool", "x")), ()])
def test_replies_that_do_not_answer_each_call_once_are_refused(replies):
    """S49, S50."""
    with pytest.raises(ValueError, match=r"expected one tool reply for each of the calls \['w', 't'\]; got replies to"):
        in_call_order(TURN, replies)


def test_swapped_replies_reach_the_policy_in_call_order():
    """S50."""
    turn = CHAT.write(
        Message(
            "assistant",
            "",
            (ToolCall("", "calculator", {"expression": "1"}), ToolCall("", "calculator", {"expression": "2"})),
        )
    )
    swapped = Reply((Message("tool", "two", call_id="call-0-1"), Message("tool", "one", call_id="call-0-0")))
    _, transcript = converse(ToolAgent(), turn, Replying(swapped, Reply(end=Status.FINISHED)))
    assert "<|tool|>one<|tool|>two<|assistant|>" in CHAT.decode(transcript.ids())


def test_what_a_turn_earned_stands_in_the_turn():
    """``None`` where the environment said nothing of it, also of the turn it was not asked about."""
    turn = CHAT.write(Message("assistant", "6"))
    env = Replying(Reply((NOTE,), reward=0.5), Reply((NOTE,)), Reply(end=Status.FINISHED, reward=-1.0))
    _, transcript = converse(ModelAgent(), turn, env)
    assert [turn.reward for turn in transcript.turns] == [0.5, None, -1.0]


def test_an_agent_without_tools_takes_a_call_for_text():
    turn = CHAT.write(Message("assistant", "", (ToolCall("", "calculator", {"expression": "1"}),)))
    env = Replying(Reply((Message("user", "go on"),)), Reply(end=Status.FINISHED))
    ending, transcript = converse(ModelAgent(), turn, env)
    assert ending.status is Status.FINISHED
    assert [(m.content, m.calls) for m in env.heard] == [("<|calculator|>1", ())] * 2
    assert CHAT.decode(transcript.ids()).count("<|user|>go on<|assistant|>") == 1


def test_the_last_turn_is_heard_by_the_environment_and_what_it_says_then_is_kept():
    """S42: the true last observation of an episode that was cut, in the record and in the tokens, untrained."""
    turn = CHAT.write(Message("assistant", "6"))
    env = Replying(Reply((NOTE,)), Reply((NOTE,)))
    ending, transcript = converse(ModelAgent(), turn, env, max_turns=2)
    assert (ending.status, ending.reason) == (Status.TRUNCATED_TURNS, "no answer in 2 turns")
    assert len(env.heard) == len(transcript.turns) == 2
    assert [message.content for message in transcript.messages] == ["2*3", "6", "hurry", "6", "hurry"]
    assert CHAT.decode(transcript.ids()).endswith("<|user|>hurry<|assistant|>6<|end|><|user|>hurry<|assistant|>")
    assert CHAT.decode(transcript.ids()[transcript.mask()]) == "6<|end|>6<|end|>"

"""How a tool agent ends: by an answer, by a finish call, or by an invalid call where that is declared."""

import asyncio

import pytest

from stages.agents.agent import Setting
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import FinishTool, ToolAgent
from stages.envs.environment import Opening
from stages.envs.tool_env import ToolEnv
from stages.records import BadCall, Message, Status, Task, ToolCall
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat
from stages.text.transcript import Transcript
from stages.tools.calculator import calculator_tool

CALCULATOR, FINISH = calculator_tool(), FinishTool()
CHAT = CompactChat([CALCULATOR, FINISH])
ASK = Message("assistant", "", (ToolCall("0", "calculator", {"expression": "2*3"}),))
DONE = Message("assistant", "", (ToolCall("0", "finish", {"answer": "6"}),))


class Heard(ToolEnv):
    """A tool environment that notes what it is asked."""

    def __init__(self, on_invalid=None):
        super().__init__([CALCULATOR])
        self.heard, self.on_invalid = [], on_invalid

    async def step(self, message):
        self.heard.append(message)
        return await super().step(message)


def hold(agent, *said, on_invalid=None):
    """The ending, the record, and what the environment heard."""

    async def main():
        env, transcript = Heard(), Transcript()
        opening = await env.reset(Task("t", "2*3"), (0, 0, 0, 0))
        opening = Opening(opening.messages, opening.tools, on_invalid)
        setting = Setting(ScriptedPolicy(CHAT, said), CHAT, env, opening, SamplingConfig(max_turns=4), (0, 0, 0, 0), "s")
        return await agent.run(setting, transcript), transcript, env.heard

    return asyncio.run(main())


def test_a_finish_call_is_the_answer_and_the_record_has_both():
    ending, transcript, heard = hold(ToolAgent(finish=FINISH), ASK, DONE)
    assert ending.status is Status.FINISHED
    assert [message.content for message in heard] == ["", "6"]
    assert transcript.messages[-2].calls[0].name == "finish"
    assert transcript.messages[-1] == Message("assistant", "6")
    assert CHAT.decode(transcript.ids()[transcript.mask()]) == "<|calculator|>2*3<|end|><|finish|>6<|end|>"


def test_a_turn_without_a_call_is_an_answer_too():
    ending, transcript, _ = hold(ToolAgent(finish=FINISH), "6")
    assert (ending.status, transcript.messages[-1].content) == (Status.FINISHED, "6")


def test_a_finish_call_beside_others_is_answered_as_an_invalid_call():
    both = Message("assistant", "", (*ASK.calls, ToolCall("1", "finish", {"answer": "6"})))
    ending, _, heard = hold(ToolAgent(finish=FINISH), both, DONE)
    assert ending.status is Status.FINISHED
    assert [type(call) for call in heard[0].calls] == [ToolCall, BadCall]
    assert heard[0].calls[1].problem == "expected finish alone in its turn, got 2 calls"


@pytest.mark.parametrize(("agents", "tasks", "ends"), [
    ("answer", None, False), ("end", None, True), ("answer", "end", True), ("end", "answer", False),
])  # fmt: skip
def test_an_invalid_call_is_answered_or_ends_the_episode_and_the_task_goes_first(agents, tasks, ends):
    unknown = Message("assistant", "", (*ASK.calls, ToolCall("1", "finish", {"answer": "6"})))
    ending, transcript, heard = hold(ToolAgent(on_invalid=agents), unknown, "6", on_invalid=tasks)
    if ends:
        assert ending.status is Status.TRUNCATED_TURNS
        assert ending.reason == "an invalid call: expected one of calculator, got finish"
        assert heard == [], "nothing of the turn is executed"
    else:
        assert ending.status is Status.FINISHED
        assert "error: expected one of calculator, got finish" in [message.content for message in transcript.messages]


def test_a_finish_call_named_like_a_tool_is_refused():
    with pytest.raises(ValueError, match="expected a finish call of a name of its own, got 'calculator'"):
        hold(ToolAgent(finish=FinishTool("calculator")), DONE)

"""A policy by script says what it has, within its budget, for any number of episodes at once."""

import asyncio

import numpy as np
import pytest

from stages.policy import SampleRequest
from stages.records import Message, ToolCall
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool

CHAT = CompactChat([calculator_tool()])


def sample(policy, turn=0, max_tokens=20, talk="1+1"):
    ids = CHAT.open([Message("user", talk)], [])
    request = SampleRequest(ids, max_tokens, CHAT.stop_ids, 1.0, (0, 0, 0, 0, turn), "s")
    return asyncio.run(policy.sample(request))


def test_turns_come_in_order_and_the_last_one_again():
    policy = ScriptedPolicy(CHAT, [Message("assistant", "", (ToolCall("", "calculator", {"expression": "1+1"}),)), "2"])
    said = [CHAT.decode(sample(policy, turn).ids) for turn in range(4)]
    assert said == ["<|calculator|>1+1<|end|>", "2<|end|>", "2<|end|>", "2<|end|>"]


def test_a_function_reads_the_conversation():
    policy = ScriptedPolicy(CHAT, lambda talk, turn: f"{len(talk)} {turn}")
    assert CHAT.decode(sample(policy, 3).ids) == f"{len('<|bos|><|user|>1+1<|assistant|>')} 3<|end|>"


def test_a_turn_is_cut_to_the_budget():
    cut = sample(ScriptedPolicy(CHAT, ["123"]), max_tokens=2)
    assert (CHAT.decode(cut.ids), cut.stop_reason) == ("12", "length")
    assert len(cut.ids) == len(cut.logprobs) == len(cut.versions)
    assert np.isfinite(cut.logprobs).all()
    assert sample(ScriptedPolicy(CHAT, ["123"]), max_tokens=4).stop_reason == "stop"


def test_an_empty_script_is_refused():
    with pytest.raises(ValueError, match="expected at least one turn"):
        ScriptedPolicy(CHAT, [])

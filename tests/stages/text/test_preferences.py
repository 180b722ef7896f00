import asyncio

import numpy as np
import pytest

from flow import testing
from stages.records import Message, Preference, ToolCall
from stages.text.compact import CompactChat
from stages.text.preferences import WritePreference
from stages.tools.calculator import calculator_tool

CALCULATOR = calculator_tool()
CHAT = CompactChat([CALCULATOR])
CALL = ToolCall("call-1-0", "calculator", {"expression": "2*3"})
PROMPT = (Message("user", "1+1"), Message("assistant", "2"), Message("user", "2*3"))
CHOSEN = (Message("assistant", "", (CALL,)), Message("tool", "6", call_id="call-1-0"), Message("assistant", "6"))


def written(preference: Preference):
    context = testing.context(node="written", path=(4,), birth=4)
    return asyncio.run(WritePreference(CHAT, [CALCULATOR])(preference, context))


def test_a_preference_becomes_two_episodes_whose_targets_are_the_replies_alone():
    """What the assistant said in the prompt is read by both and a target of neither."""
    group = written(Preference("p", PROMPT, CHOSEN, (Message("assistant", "5"),)))
    chosen, rejected = group.episodes
    assert CHAT.decode(chosen.ids[chosen.mask]) == "<|calculator|>2*3<|end|>6<|end|>"
    assert CHAT.decode(rejected.ids[rejected.mask]) == "5<|end|>"
    said = "<|bos|><|user|>1+1<|assistant|>2<|end|><|user|>2*3<|assistant|>"
    assert CHAT.decode(chosen.ids) == said + "<|calculator|>2*3<|end|><|tool|>6<|assistant|>6<|end|>"
    assert CHAT.decode(rejected.ids) == said + "5<|end|>"
    assert [len(episode.turns) for episode in group.episodes] == [2, 1]
    assert [(episode.birth, episode.member, episode.task.id) for episode in group.episodes] == [(4, 0, "p"), (4, 1, "p")]
    assert group.live == (True, True)
    for episode, advantages, sign in zip(group.episodes, group.advantages, (1.0, -1.0), strict=True):
        assert advantages.dtype == np.float32
        assert advantages.tolist() == (sign * episode.mask).tolist()


def test_a_reply_with_nothing_to_learn_is_refused_by_name():
    with pytest.raises(ValueError, match=r"an assistant message last; got roles .* in example 'odd'"):
        written(Preference("odd", PROMPT, CHOSEN, ()))

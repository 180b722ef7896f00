import asyncio

import numpy as np
import pytest

from flow import testing
from stages.records import Example, Message, Status, ToolCall
from stages.text.compact import CompactChat
from stages.text.demonstrations import Demonstrate
from stages.tools.calculator import calculator_tool

CALCULATOR = calculator_tool()
CHAT = CompactChat([CALCULATOR])
CALL = ToolCall("call-1-0", "calculator", {"expression": "2*3"})
GOOD = Example(
    "good",
    (
        Message("user", "2*3"),
        Message("assistant", "", (CALL,)),
        Message("tool", "6", call_id="call-1-0"),
        Message("assistant", "6"),
    ),
)
CONTEXT = testing.context(node="demos", path=(4,), birth=4)


def demonstrate(*examples):
    return asyncio.run(Demonstrate(CHAT, [CALCULATOR])(examples, CONTEXT))


def test_targets_are_exactly_the_assistant_turns_with_their_end_tokens():
    """S58: the mask comes from the pieces, so it cannot be empty by accident."""
    group = demonstrate(GOOD, Example("short", (Message("user", "1+1"), Message("assistant", "2"))))
    first, second = group.episodes
    spoken = [CHAT.decode(first.ids[turn.start : turn.stop]) for turn in first.turns]
    assert spoken == ["<|calculator|>2*3<|end|>", "6<|end|>"]
    assert CHAT.decode(first.ids[first.mask]) == "".join(spoken)
    assert CHAT.decode(first.ids) == "<|bos|><|user|>2*3<|assistant|><|calculator|>2*3<|end|><|tool|>6<|assistant|>6<|end|>"
    assert np.isnan(first.logprobs).all()
    assert (first.versions == -1).all()
    assert len(first.ids) == len(first.mask) == len(first.logprobs) == len(first.versions)
    assert [np.unique(a[e.mask]).tolist() for a, e in zip(group.advantages, group.episodes, strict=True)] == [[1.0], [1.0]]
    assert [(e.birth, e.member, e.task.id, e.status) for e in group.episodes] == [
        (4, 0, "good", Status.FINISHED),
        (4, 1, "short", Status.FINISHED),
    ]
    assert second.num_sampled == 2


@pytest.mark.parametrize(
    "roles", [(), ("user",), ("assistant",), ("user", "assistant", "user"), ("user", "assistant", "assistant")]
)
def test_an_example_with_nothing_to_learn_is_refused_by_name(roles):
    """S58: loud, not an all-zero mask."""
    with pytest.raises(ValueError, match=r"an assistant message last; got roles .* in example 'odd'"):
        demonstrate(Example("odd", tuple(Message(role, "1") for role in roles)))

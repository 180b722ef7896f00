"""What is wrong with the answers of an environment is told in one line; nothing is where nothing is."""

import numpy as np
import pytest

from stages.envs.answers import opening_problem, reply_problem, score_problem
from stages.envs.environment import Opening, Reply
from stages.records import Message, Status, ToolCall
from stages.tools.calculator import calculator_tool

USER, TURN = Message("user", "go"), Message("assistant", "", (ToolCall("a", "f", {}), ToolCall("b", "f", {})))
A, B = Message("tool", "1", call_id="a"), Message("tool", "2", call_id="b")


@pytest.mark.parametrize(
    ("opening", "problem"),
    [
        (Opening((USER,)), None),
        ("go", "expected an Opening, got str"),
        (Opening(()), "expected at least one message, got none"),
        (Opening(("go",)), "expected messages, got str"),
        (Opening((A,)), "expected messages of system, user, assistant, got one of tool"),
        (Opening((Message("user", 3),)), "expected messages with text, got int"),
        (Opening((USER,), (calculator_tool(),) * 2), "expected tools with names that differ, got ['calculator', 'calculator']"),
        (Opening((USER,), (), "stop"), "expected on_invalid to be answer, end or None, got 'stop'"),
    ],
)
def test_an_opening(opening, problem):
    assert opening_problem(opening) == problem


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply((B, A, USER)), None),
        (Reply((), Status.FINISHED), None),
        (Reply((A,), Status.TRUNCATED_TURNS), None),
        (Reply((A,)), "expected one tool message for each of the calls ['a', 'b'], got answers to ['a']"),
        (Reply((A, A)), "expected one tool message for each of the calls ['a', 'b'], got answers to ['a', 'a']"),
        (Reply((A, A), Status.FINISHED), "expected at most one tool message for each of the calls ['a', 'b'], got answers to "
         "['a', 'a']"),
        (Reply((Message("assistant", "me"),)), "expected messages of tool, user, got one of assistant"),
        (None, "expected a Reply, got NoneType"),
    ],
)  # fmt: skip
def test_a_reply(reply, problem):
    assert reply_problem(TURN, reply) == problem


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (None, None),
        ({"a": 1, "b": np.float32(0.5), "c": True}, None),
        (1.0, "expected rewards by name of their part, got float"),
        ({1: 1.0}, "expected names of parts, got 1"),
        ({"a": "1"}, "expected a finite number in a, got 1"),
        ({"a": [1]}, "expected a finite number in a, got [1]"),
        ({"a": float("inf")}, "expected a finite number in a, got inf"),
    ],
)
def test_a_score(parts, problem):
    assert score_problem(parts) == problem

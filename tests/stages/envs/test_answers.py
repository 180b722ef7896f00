"""An answer of an environment becomes a sound copy of our own, or one line that says what is wrong; nothing else happens."""

from decimal import Decimal

import numpy as np
import pytest

from stages.envs.answers import AnswerError, checked_opening, checked_reply, checked_score
from stages.envs.environment import Opening, Reply
from stages.envs.shown_tool import ShownTool
from stages.records import BadCall, Message, Status, ToolCall
from stages.tools.calculator import calculator_tool

USER, TURN = Message("user", "go"), Message("assistant", "", (ToolCall("a", "f", {}), ToolCall("b", "f", {})))
A, B = Message("tool", "1", call_id="a"), Message("tool", "2", call_id="b")
SHOWN = [ShownTool("f", "", {})]


class Odd:
    """Raises whatever is asked of it."""

    @property
    def name(self):
        raise OSError("unplugged")

    description = parameters = call = name
    __float__ = __str__ = lambda self: self.name


def problem(check, *args):
    try:
        check(*args)
    except AnswerError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("opening", "expected"),
    [
        (Opening((USER,)), None),
        ("go", "expected an Opening, got str"),
        (Opening(()), "expected at least one message, got none"),
        (Opening(("go",)), "expected messages, got str"),
        (Opening((A,)), "expected messages of system, user, assistant, got one of tool"),
        (Opening((Message("user", 3),)), "expected messages with text, got int"),
        (Opening((USER,), (calculator_tool(),) * 2), "expected tools with names that differ, got ['calculator', 'calculator']"),
        (Opening((USER,), None), "expected a tuple of tools, got NoneType"),
        (Opening((USER,), (5,)), "expected tools, got int"),
        (Opening((USER,), (Odd(),)), "expected an answer that can be read, got OSError: unplugged"),
        (Opening((USER,), (ShownTool("f", "", 5),)), "expected a schema of f's arguments, got int"),
        (Opening((USER,), (), np.zeros(2)), "expected on_invalid to be answer, end or None, got array([0., 0.])"),
        (Opening((USER,), (), "stop"), "expected on_invalid to be answer, end or None, got 'stop'"),
    ],
)
def test_an_opening(opening, expected):
    assert problem(checked_opening, opening) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
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
        (Reply((), "finished"), "expected an end of Status.FINISHED, Status.TRUNCATED_TURNS or None, got 'finished'"),
        (Reply((A, B), None, 5), "expected a reason of one line or None, got int"),
        (Reply((A, B), reward=np.float32(0.5)), None),
        (Reply((A, B), reward=float("nan")), "expected a finite number in the reward of a turn, got nan"),
        (Reply((), Status.FINISHED, reward="1"), "expected a finite number in the reward of a turn, got 1"),
        (Reply(message for message in (A, B)), "expected a tuple of messages, got generator"),
        (Reply((Message("tool", "1", call_id=5), B)), "expected the id of a call, got int"),
        (Reply((A, B, Message("tool", "3", call_id="c"))), "expected one tool message for each of the calls "
         "['a', 'b'], got answers to ['a', 'b', 'c']"),
    ],
)  # fmt: skip
def test_a_reply(reply, expected):
    assert problem(checked_reply, TURN, reply, SHOWN) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (None, None),
        ({"a": 1, "b": np.float32(0.5), "c": True}, None),
        (1.0, "expected rewards by name of their part, got float"),
        ({1: 1.0}, "expected names of parts, got int"),
        ({"a": "1"}, "expected a finite number in a, got 1"),
        ({"a": [1]}, "expected a finite number in a, got [1]"),
        ({"a": float("inf")}, "expected a finite number in a, got inf"),
        ({"a": np.array([1.0, 2.0])}, "expected a finite number in a, got [1. 2.]"),
        ({"a": np.array([1.0])}, "expected a finite number in a, got [1.]"),
        ({"a": np.array(1.0), "b": Decimal("0.5")}, None),
        ({"a": 10**400}, f"expected a finite number in a, got 1{'0' * 39}"),
        ({"a": 10**9999}, "expected a finite number in a, got int"),
        ({"a": Decimal("sNaN")}, "expected a finite number in a, got sNaN"),
        ({"a": Odd()}, "expected an answer that can be read, got OSError: unplugged"),
    ],
)
def test_a_score(parts, expected):
    assert problem(checked_score, parts) == expected


def test_what_is_checked_is_a_copy_that_the_environment_has_no_hand_in():
    tool, parts, messages = calculator_tool(), {"a": np.float32(0.5), "b": True}, [Message("user", "\ud800!")]
    opening = checked_opening(Opening(messages, [tool]))
    reply, score = checked_reply(USER, Reply(messages), ()), checked_score(parts)
    messages.clear()
    parts.clear()
    tool.parameters["properties"].clear()
    assert opening.messages == reply.messages == (Message("user", "?!"),)
    assert list(opening.tools[0].parameters["properties"]) == ["expression"]
    assert (score, {type(value) for value in score.values()}) == ({"a": 0.5, "b": 1.0}, {float})


def test_calls_of_what_is_not_there_are_answered_where_the_environment_does_not():
    calls = (ToolCall("a", "f", {}), ToolCall("b", "g", {}), BadCall("c", "expected JSON, got {"))
    turn = Message("assistant", "", calls)
    errors = [Message("tool", "error: expected one of f, got g", call_id="b")]
    errors.append(Message("tool", "error: expected JSON, got {", call_id="c"))
    assert checked_reply(turn, Reply((A, USER)), SHOWN).messages == (*errors, A, USER)
    assert checked_reply(turn, Reply((B, A)), SHOWN).messages == (errors[1], B, A)
    assert checked_reply(turn, Reply((), Status.FINISHED), SHOWN).messages == ()
    none = "error: expected text without a call: no tool is here, got "
    assert [message.content for message in checked_reply(turn, Reply(()), ()).messages[:2]] == [f"{none}f", f"{none}g"]

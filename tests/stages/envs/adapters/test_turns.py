import pytest

from stages.envs.adapters.turns import InvalidActions, named_action
from stages.records import BadCall, Message, Status, ToolCall

ACTIONS = {"left": 0, "right": 1, "pick up": 2, "-1": 3, "1": 4}


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("left", 0),
        ("Not left, so: RIGHT.", 1),
        ("I pick up", 2),
        ("-1", 3),
        ("1", 4),
        ("upright leftover 21 1st", None),
        ("", None),
    ],
)
def test_the_last_whole_name_is_the_action(text, action):
    assert named_action(text, ACTIONS) == action


def test_invalid_actions_in_a_row_are_answered_then_end_the_episode():
    """S53."""
    invalid = InvalidActions(2)
    bad = Message("assistant", "hm")
    first = invalid.refuse(bad, "left or right", 100)
    assert (first.messages, first.end) == ((Message("user", "error: expected left or right, got 'hm'"),), None)
    invalid.accept()
    assert invalid.refuse(bad, "left or right", 100).end is None
    last = invalid.refuse(bad, "left or right", 100)
    assert (last.end, last.reason) == (Status.TRUNCATED_TURNS, "2 invalid actions in a row")


def test_every_call_of_a_turn_without_tools_is_answered_under_its_own_id():
    """S49."""
    turn = Message("assistant", "left", (ToolCall("c0", "go", {}), BadCall("c1", "cut")))
    reply = InvalidActions(3).refuse(turn, "left or right", 100)
    assert [(message.role, message.call_id) for message in reply.messages] == [("tool", "c0"), ("tool", "c1"), ("user", None)]


def test_what_is_said_of_an_invalid_action_is_bounded():
    reply = InvalidActions(3).refuse(Message("assistant", "x" * 1000), "y" * 1000, 80)
    assert len(reply.messages[0].content) <= 80

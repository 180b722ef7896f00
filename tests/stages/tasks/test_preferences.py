import json

import pytest

from stages.records import Message, Preference, ToolCall
from stages.tasks.preferences import Preferences, read_preferences, write_preferences
from stages.tasks.rows import RowError

ASKED = [{"role": "user", "content": "2*3"}]
ANSWER = [{"role": "assistant", "content": "6"}]


def test_preferences_are_read_back_as_they_were_written(tmp_path):
    call = ToolCall("call-3-0", "calculator", {"expression": "2*3"})
    prompt = (Message("user", "1+1"), Message("assistant", "2"), Message("user", "2*3"))
    chosen = (Message("assistant", "", (call,)), Message("tool", "6", call_id="call-3-0"), Message("assistant", "6"))
    preferences = (
        Preference("a", prompt, chosen, (Message("assistant", "5"),)),
        Preference("b", prompt[:1], (Message("assistant", "2"),), (Message("assistant", "3"),)),
    )
    write_preferences(tmp_path / "p.jsonl", preferences)
    assert read_preferences(tmp_path / "p.jsonl") == preferences


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"chosen": []}, "chosen: expected a reply that begins with an assistant message, got []"),
        ({"rejected": ASKED}, "rejected: expected a reply that begins with an assistant message, got ['user']"),
        ({"rejected": ANSWER + ASKED}, "prompt and rejected: messages: expected a prompt first and an answer last"),
        ({"prompt": []}, "prompt and chosen: messages: expected a prompt first"),
        ({"rejected": ANSWER}, "rejected: expected another reply than the chosen one, got the same"),
    ],
)
def test_a_row_that_is_no_preference_is_refused_with_its_number(tmp_path, row, problem):
    good = {"id": "p", "prompt": ASKED, "chosen": ANSWER, "rejected": [{"role": "assistant", "content": "5"}]}
    (tmp_path / "p.jsonl").write_text(json.dumps(good) + "\n" + json.dumps(good | {"id": "q"} | row))
    with pytest.raises(RowError) as refused:
        read_preferences(tmp_path / "p.jsonl")
    assert f"row 2: {problem}" in str(refused.value)


def test_a_source_draws_every_preference_once_an_epoch_and_goes_on_where_it_was():
    set_of = [Preference(str(index), (), (), ()) for index in range(5)]
    source, again = Preferences(set_of, seed=3), Preferences(set_of, seed=3)
    drawn = [source.draw().id for _ in range(10)]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == ["0", "1", "2", "3", "4"]
    assert drawn[:5] != drawn[5:]
    for _ in range(7):
        again.draw()
    resumed = Preferences(set_of, seed=3)
    resumed.restore(again.state())
    assert [resumed.draw().id for _ in range(3)] == drawn[7:]
    with pytest.raises(ValueError, match="expected at least one preference, got none, in Preferences"):
        Preferences([], seed=0)

import json

import pytest

from stages.records import Message, Task, ToolCall
from stages.tasks.examples import read_examples, write_examples
from stages.tasks.jsonl import JsonlTasks
from stages.tasks.rows import RowError


def write(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_become_tasks(tmp_path):
    path = write(
        tmp_path / "sums.jsonl",
        {"id": "a", "prompt": "1+1", "answer": "2", "extra": {"level": 1}},
        "\n",
        {"id": "b", "prompt": "é", "source": "other", "difficulty": "hard"},
    )
    tasks = JsonlTasks(path)
    assert list(tasks) == [Task("a", "1+1", "2", "sums", {"level": 1}), Task("b", "é", None, "other", {}, "hard")]
    assert (len(tasks), tasks[1].id) == (2, "b")


def test_every_broken_row_is_told_at_once_with_its_number_and_field(tmp_path):
    good = {"id": "a", "prompt": "1+1"}
    path = write(
        tmp_path / "t.jsonl",
        good,
        '{"id": "b", "prompt": \n',
        {"id": "c", "prompt": 3},
        {"id": "d"},
        {"id": "e", "prompt": "x", "anser": "1"},
        good,
        {"id": "f", "prompt": ""},
        "[1]\n",
    )
    with pytest.raises(RowError) as refused:
        JsonlTasks(path)
    head, *rows, remedy = str(refused.value).splitlines()
    assert head == (
        "expected rows that are JSON objects with the fields id, prompt, answer (optional), source (optional), "
        f"extra (optional), difficulty (optional); got 7 that are not, in {path}:"
    )
    assert [row.split(":")[0] for row in rows] == [f"  row {n}" for n in (2, 3, 4, 5, 6, 7, 8)]
    assert rows[1] == '  row 3: Expected `str`, got `int` - at `$.prompt`; got {"id": "c", "prompt": 3}'
    assert "missing required field `prompt`" in rows[2]
    assert "unknown field `anser`" in rows[3]
    assert "expected a name used once, got 'a', as in row 1" in rows[4]
    assert "prompt: expected text, got none" in rows[5]
    assert remedy == "correct or remove these rows"


def test_no_more_than_ten_rows_are_shown(tmp_path):
    with pytest.raises(RowError, match="got 30 that are not") as refused:
        JsonlTasks(write(tmp_path / "t.jsonl", *["{}\n"] * 30))
    assert len(str(refused.value).splitlines()) == 13
    assert "  and 20 more" in str(refused.value)


def test_a_check_of_the_caller_runs_over_every_row_at_start(tmp_path):
    """S106: one misspelt name among a thousand rows."""
    rows = [{"id": str(i), "prompt": "x", "extra": {"env": "chess" if i != 700 else "ches"}} for i in range(1000)]
    path = write(tmp_path / "t.jsonl", *rows)
    with pytest.raises(RowError, match=r"row 701: extra\.env: expected chess, got ches"):
        JsonlTasks(
            path,
            check=lambda t: None if t.extra["env"] == "chess" else f"extra.env: expected chess, got {t.extra['env']}",
        )


def test_too_few_rows_are_refused(tmp_path):
    """S108."""
    path = write(tmp_path / "t.jsonl", {"id": "a", "prompt": "x"})
    with pytest.raises(RowError, match=r"expected at least 4 rows; got 1, in .*t\.jsonl; add rows"):
        JsonlTasks(path, min_rows=4)
    with pytest.raises(RowError, match="expected at least 1 rows; got 0"):
        JsonlTasks(write(tmp_path / "empty.jsonl"))


def test_examples_are_read_back_as_they_were_written(tmp_path):
    path = write(
        tmp_path / "demos.jsonl",
        {
            "id": "a",
            "messages": [
                {"role": "user", "content": "1+1"},
                {"role": "assistant", "calls": [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}]},
                {"role": "tool", "content": "2"},
                {"role": "tool", "content": "3"},
                {"role": "assistant", "content": "2"},
            ],
        },
    )
    (example,) = read_examples(path)
    assert example.messages[1] == Message("assistant", "", (ToolCall("call-1-0", "f", {"x": 1}), ToolCall("call-1-1", "g", {})))
    assert [message.call_id for message in example.messages] == [None, None, "call-1-0", "call-1-1", None]
    write_examples(tmp_path / "again.jsonl", [example])
    assert read_examples(tmp_path / "again.jsonl") == (example,)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "expected a prompt first"),
        ([{"role": "assistant", "content": "x"}], "expected a prompt first"),
        ([{"role": "user", "content": "x"}], "an answer last"),
        ([{"role": "bot", "content": "x"}], "Invalid enum value 'bot'"),
        (
            [{"role": "user"}, {"role": "tool"}, {"role": "assistant"}],
            r"messages\[1\]: expected no tool message without a call",
        ),
        (
            [{"role": "user"}, {"role": "assistant", "calls": [{"name": "f", "arguments": {}}]}, {"role": "assistant"}],
            r"messages\[2\]: expected a tool message for call-1-0",
        ),
        (
            [{"role": "user"}, {"role": "assistant", "calls": [{"name": "f", "arguments": None}]}],
            "Expected `object`, got `null`",
        ),
        ([{"role": "user", "calls": [{"name": "f", "arguments": {}}]}], "expected calls in assistant messages only"),
    ],
)
def test_an_example_that_is_no_conversation_is_refused_with_its_row(tmp_path, messages, problem):
    path = write(tmp_path / "demos.jsonl", {"id": "a", "messages": messages})
    with pytest.raises(RowError, match=f"row 1: .*{problem}"):
        read_examples(path)

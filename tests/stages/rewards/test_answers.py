import numpy as np
import pytest

from stages.records import Episode, Message, Status, Task, ToolCall
from stages.rewards.answers import exact_answer, last_number


def episode(*messages: Message, answer: str | None = "12", status: Status = Status.FINISHED) -> Episode:
    return Episode(
        task=Task("t", "6 * 2?", answer),
        birth=0,
        member=0,
        retry=0,
        ids=np.arange(3, dtype=np.int32),
        mask=np.array([False, True, True]),
        logprobs=np.array([np.nan, -1, -1], np.float32),
        versions=np.array([-1, 0, 0], np.int32),
        turns=(),
        messages=messages,
        status=status,
    )


def said(text: str) -> Message:
    return Message("assistant", text)


def test_the_right_answer_earns_one_whatever_blanks_surround_it():
    assert exact_answer(episode(said(" 12\n"))) == 1.0
    assert exact_answer(episode(said("12"), answer=" 12 ")) == 1.0
    assert exact_answer(episode(said("12."))) == 0.0
    assert exact_answer(episode(said("the answer is 12"))) == 0.0


@pytest.mark.parametrize("reward", [exact_answer, last_number])
@pytest.mark.parametrize("status", [Status.TRUNCATED_LENGTH, Status.TRUNCATED_TURNS])
def test_a_truncated_episode_earns_nothing_even_where_its_text_is_right(reward, status):
    assert reward(episode(said("12"), status=status)) == 0.0


@pytest.mark.parametrize("reward", [exact_answer, last_number])
def test_only_the_last_words_of_the_policy_count(reward):
    tool = Message("tool", "12", call_id="c")
    call = Message("assistant", "12", calls=(ToolCall("c", "calculator", {}),))
    assert reward(episode(call, tool)) == 0.0
    assert reward(episode(call)) == 0.0
    assert reward(episode(said("12"), tool, said("13"))) == 0.0
    assert reward(episode()) == 0.0
    assert reward(episode(call, tool, said("12"))) == 1.0


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("6 times 2 is 12.", "12", True),
        ("first 12, then 13", "12", False),
        ("that makes 1,200.0", "1200", True),
        ("-3", "3", False),
        ("it is -3", "-3", True),
        ("10-3", "3", True),
        ("1.2e3", "1200", True),
        ("0.30000000000000004", "0.3", True),
        ("0.3001", "0.3", False),
        ("none at all", "12", False),
        ("x12", "12", False),
        ("0", "0", True),
    ],
)
def test_the_last_number_is_compared_as_a_number(text, answer, right):
    assert last_number(episode(said(text), answer=answer)) == float(right)


def test_a_task_that_cannot_be_scored_is_an_error_and_no_zero():
    with pytest.raises(ValueError, match="expected a reference answer, got none"):
        exact_answer(episode(said("12"), answer=None))
    with pytest.raises(ValueError, match="expected a number as reference answer, got 'twelve'"):
        last_number(episode(said("12"), answer="twelve"))

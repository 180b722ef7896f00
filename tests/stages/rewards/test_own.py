"""What a reward function sees: the answer is planted wherever it is not the policy's doing."""

import msgspec
import numpy as np
import pytest

from stages.records import Episode, Message, Row, Status, Task, Turn
from stages.rewards.answers import exact_answer
from stages.rewards.own import own_words


def episode(*messages: Message, mask, turns, rows=()) -> Episode:
    sampled = np.array(mask, bool)
    return Episode(
        task=Task("t", "what is 6 * 7?", "42"),
        birth=0,
        member=0,
        retry=0,
        ids=np.arange(len(mask), dtype=np.int32),
        mask=sampled,
        logprobs=np.where(sampled, -1.0, np.nan).astype(np.float32),
        versions=np.where(sampled, 3, -1).astype(np.int32),
        turns=tuple(Turn(*span, "stop", 0.0, None) for span in turns),
        messages=messages,
        status=Status.FINISHED,
        rows=rows,
        teacher=np.where(sampled, -2.0, np.nan).astype(np.float32),
    )


PLANTED = episode(
    Message("system", "hint: 42"),
    Message("user", "the answer to all is 42"),
    Message("assistant", "42"),
    Message("user", "what is 6 * 7?"),
    Message("assistant", "let me see"),
    Message("tool", "42", call_id="c"),
    Message("assistant", "13"),
    Message("user", "it was 42"),
    mask=[False, False, True, True, False, True],
    turns=[(2, 4), (5, 6)],
)
"""An example in the prompt, a tool and an observation say 42; the policy says 13, in two turns of two tokens and one."""


def test_an_answer_in_tool_output_prompt_or_example_is_not_seen():
    seen = own_words(PLANTED)
    assert [message.content for message in seen.messages] == ["let me see", "13"]
    assert "42" not in repr(seen.messages)
    assert exact_answer(seen) == 0.0


def test_tokens_are_the_sampled_ones_and_turns_are_where_they_stand_among_them():
    """Ids of the prompt and of the tool are gone as well: nothing can be decoded out of what is left."""
    seen = own_words(PLANTED)
    assert seen.ids.tolist() == [2, 3, 5]
    assert seen.mask.tolist() == [True] * 3
    assert [(turn.start, turn.stop) for turn in seen.turns] == [(0, 2), (2, 3)]
    assert np.isfinite(seen.logprobs).all()
    assert seen.teacher.tolist() == [-2.0] * 3
    assert (seen.num_sampled, seen.task, seen.status) == (3, PLANTED.task, PLANTED.status)
    seen.mask[:] = False
    assert PLANTED.num_sampled == 3


def test_rows_move_too():
    rows = (Row(0, 4), Row(4, 6, "critic", trained=False))
    seen = own_words(msgspec.structs.replace(PLANTED, rows=rows))
    assert [(row.start, row.stop) for row in seen.rows] == [(0, 2), (2, 3)]
    assert seen.num_untrained == 1


@pytest.mark.parametrize("mask", [[], [False, False]])
def test_who_said_nothing_has_no_words(mask):
    seen = own_words(episode(Message("assistant", "42"), mask=mask, turns=[]))
    assert (seen.messages, seen.num_sampled) == ((), 0)

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.records import Message, Row
from stages.text.transcript import Transcript

SAID = Message("assistant", "x")


def test_given_and_sampled_tokens_keep_their_order_and_marks():
    """S36: a token the policy did not sample has mask False and no log-probability."""
    transcript = Transcript()
    transcript.give(np.array([1, 2]))
    transcript.sample(np.array([3]), np.array([-0.5]), np.array([7]), SAID, "stop", 0.25)
    transcript.give(np.array([4]))
    assert transcript.ids().tolist() == [1, 2, 3, 4]
    assert transcript.mask().tolist() == [False, False, True, False]
    assert transcript.versions().tolist() == [-1, -1, 7, -1]
    np.testing.assert_array_equal(transcript.logprobs(), np.array([np.nan, np.nan, -0.5, np.nan], np.float32))
    assert (transcript.ids().dtype, transcript.mask().dtype) == (np.int32, np.bool_)
    assert (transcript.turns[0].start, transcript.turns[0].stop, transcript.num_sampled) == (2, 3, 1)


def test_times_of_a_turn_are_kept():
    """S104."""
    transcript = Transcript()
    transcript.sample(np.array([3]), np.array([-0.5]), np.array([7]), SAID, "stop", 0.05)
    assert transcript.turns[0].tool_s is None
    transcript.answered(0.02)
    assert (transcript.turns[0].model_s, transcript.turns[0].tool_s) == (0.05, 0.02)


def test_arrays_of_different_lengths_are_refused_and_change_nothing():
    """S41, S54."""
    transcript = Transcript()
    with pytest.raises(ValueError, match="of one length; got 2, 1 and 2"):
        transcript.sample(np.array([1, 2]), np.array([-0.1]), np.array([0, 0]), SAID, "stop", 0.0)
    with pytest.raises(ValueError, match="at least one sampled token; got none"):
        transcript.sample(np.array([]), np.array([]), np.array([]), SAID, "stop", 0.0)
    assert len(transcript) == 0
    assert transcript.ids().shape == transcript.logprobs().shape == (0,)


def test_a_fork_begins_a_row_and_changes_none():
    """S56."""
    transcript = Transcript()
    transcript.give(np.array([1, 2]))
    transcript.sample(np.array([3]), np.array([-0.5]), np.array([7]), SAID, "stop", 0.25)
    transcript.fork(np.array([1, 9]), [Message("user", "y")])
    transcript.sample(np.array([4]), np.array([-0.5]), np.array([8]), SAID, "stop", 0.25)
    assert transcript.ids().tolist() == [1, 2, 3, 1, 9, 4]
    assert transcript.rows() == (Row(0, 3), Row(3, 6, forked=True))
    assert (transcript.row_ids().tolist(), transcript.row_length) == ([1, 9, 4], 3)
    assert [(index, ids.tolist()) for index, ids in transcript.spoken()] == [(0, [3]), (2, [4])]
    with pytest.raises(ValueError, match="expected the context of a new row; got no token"):
        transcript.fork(np.array([]))


NUMBERS = st.lists(st.integers(0, 9), max_size=4)
STEPS = st.tuples(st.sampled_from(["give", "fork"]), NUMBERS) | st.tuples(
    st.sampled_from(["stop", "length", "aborted"]), NUMBERS, NUMBERS, NUMBERS
)


@given(st.lists(STEPS, max_size=8))
def test_whatever_comes_and_is_cut_short_the_arrays_have_one_length(steps):
    """S54: turns stopped, cut or aborted inside, weights changed inside a turn, rows begun, and arrays that do not fit.

    The other book is kept here: plain lists of tokens and of who they are from.
    """
    transcript, ids, sampled, rows = Transcript(), [], [], [0]
    for step in steps:
        fits = len(step) == 2 or (step[1] and len(step[1]) == len(step[2]) == len(step[3]))
        try:
            if step[0] == "give":
                transcript.give(np.array(step[1], np.int32))
            elif step[0] == "fork":
                transcript.fork(np.array(step[1], np.int32))
                rows.append(len(ids))
            else:
                arrays = (np.array(numbers, np.float32) for numbers in step[1:])
                transcript.sample(*arrays, SAID, step[0], 0.0)
        except ValueError:
            assert not fits or (step[0] == "fork" and not step[1])
            continue
        ids += step[1]
        sampled += [len(step) == 4] * len(step[1])
    assert (transcript.ids().tolist(), transcript.mask().tolist()) == (ids, sampled)
    assert len(transcript) == len(ids) == len(transcript.logprobs()) == len(transcript.versions())
    assert np.isfinite(transcript.logprobs()).tolist() == (transcript.versions() >= 0).tolist() == sampled
    begun = [row for row, after in itertools.pairwise([*rows, len(ids)]) if after > row]
    assert [row.start for row in transcript.rows()] == (begun if len(begun) > 1 else [])
    assert transcript.row_ids().tolist() == ids[rows[-1] :]
    assert transcript.num_sampled == sum(sampled) == sum(turn.stop - turn.start for turn in transcript.turns)

import numpy as np
import pytest

from stages.records import Message
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

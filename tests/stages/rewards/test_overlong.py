import numpy as np
import pytest

from stages.records import Episode, Status, Task, Turn
from stages.rewards.overlong import SoftOverlong, overlong_penalty


@pytest.mark.parametrize(("length", "wanted"), [(0, 0), (16, 0), (17, -0.25), (18, -0.5), (20, -1), (21, -1), (900, -1)])
def test_it_falls_in_a_straight_line_over_the_buffer(length, wanted):
    """By hand from equation 13 of DAPO with L_max = 20 and L_cache = 4."""
    assert overlong_penalty(length, 20, 4) == wanted


def test_the_length_is_what_was_sampled():
    """S37: turns of 4 and 5 sampled tokens with 3 tool tokens between have a length of 9, not 12."""
    mask = np.array([False] + [True] * 4 + [False] * 3 + [True] * 5)
    empty = np.zeros(len(mask), np.float32)
    turns = (Turn(1, 5, "stop", 0, None), Turn(8, 13, "stop", 0, None))
    played = Episode(Task("t", ""), 0, 0, 0, empty, mask, empty, empty, turns, (), Status.FINISHED)
    assert SoftOverlong(max_tokens=11, buffer_tokens=4)(played) == -(9 - 7) / 4


@pytest.mark.parametrize("buffer", [0, 21])
def test_a_buffer_that_is_none_is_refused(buffer):
    with pytest.raises(ValueError, match="expected a buffer from 1 to max_tokens=20 tokens"):
        SoftOverlong(20, buffer)

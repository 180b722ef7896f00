import numpy as np
import pytest

from stages.records import Episode, Status, Task
from stages.rewards.environment import environment_reward


def episode(parts):
    empty = np.zeros(0, np.int32)
    return Episode(Task("t", ""), 0, 0, 0, empty, empty, empty, empty, (), (), Status.TRUNCATED_TURNS, parts=parts)


def test_it_is_the_part_that_the_environment_scored_also_of_an_episode_that_was_cut():
    assert environment_reward(episode({"reward": 0.25, "turns": 3.0})) == 0.25


def test_an_environment_that_scores_no_such_part_is_an_error_that_says_what_it_scores():
    with pytest.raises(ValueError, match=r"task 't': expected .* 'reward', got the parts \['turns'\]"):
        environment_reward(episode({"turns": 3.0}))

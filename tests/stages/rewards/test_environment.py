import msgspec
import numpy as np
import pytest

from stages.records import Episode, Status, Task, Turn
from stages.rewards.environment import environment_reward, turn_rewards


def episode(parts):
    empty = np.zeros(0, np.int32)
    return Episode(Task("t", ""), 0, 0, 0, empty, empty, empty, empty, (), (), Status.TRUNCATED_TURNS, parts=parts)


def test_it_is_the_part_that_the_environment_scored_also_of_an_episode_that_was_cut():
    assert environment_reward(episode({"reward": 0.25, "turns": 3.0})) == 0.25


def test_an_environment_that_scores_no_such_part_is_an_error_that_says_what_it_scores():
    with pytest.raises(ValueError, match=r"task 't': expected .* 'reward', got the parts \['turns'\]"):
        environment_reward(episode({"turns": 3.0}))


def played(*turns: tuple[float | None, float | None]):
    """An episode of turns, each with the seconds its answer took and its reward."""
    made = tuple(Turn(place, place + 1, "stop", 0.0, tool_s, reward) for place, (tool_s, reward) in enumerate(turns))
    return msgspec.structs.replace(episode({}), turns=made)


def test_turns_have_what_the_environment_gave_for_each():
    """0 where it gave nothing: an invalid action, a turn that was cut before it was asked."""
    assert turn_rewards(played((0.1, 0.5), (0.1, None), (None, None))) == (0.5, 0.0, 0.0)
    assert turn_rewards(played((None, None))) == (0.0,)
    assert turn_rewards(played()) == ()


def test_an_environment_that_rewards_no_turns_is_an_error_and_no_zero():
    with pytest.raises(ValueError, match="expected an environment that rewards turns, got no reward for any of 2"):
        turn_rewards(played((0.1, None), (0.1, None)))

"""An episode as the policy lived it: its trained tokens in order, with the rewards at their places. Pure.

Between the records and the rules that look at time (GAE, returns to go, turns); those over whole rewards need none of it.

Axes: T tokens of an episode; S sampled tokens of one trajectory.
"""

from typing import NamedTuple

import numpy as np

from stages.records import Episode


class Trajectory(NamedTuple):
    """What one trained reader of an episode sampled."""

    places: np.ndarray
    """int [S]: where its sampled tokens stand in the episode, in order."""
    rewards: np.ndarray
    """float64 [S]: what each token earned; their sum is the reward of the episode, less the penalties."""
    turns: np.ndarray
    """int [S]: number of the turn of each token, from 0 and without gaps."""


def trajectories(episode: Episode, penalties: np.ndarray | None = None) -> tuple[Trajectory, ...]:
    """Trained trajectories that have a sampled token.

    A row that begins with a history written anew (a fork) goes on with the trajectory of the row before it: time went on, only
    the text of the past changed. A row of another role is a trajectory of its own. Tokens of tools and observations are no
    steps.

    The reward of each turn (``Episode.turn_rewards``) stands at the last token of the turn, the rest of ``Episode.reward`` at
    the last token of the trajectory. In an episode of several trained roles each earns the whole reward: they share it.

    Args:
        episode: with a reward.
        penalties: float [T]: taken off at their tokens; ``None`` for none.
    """
    found: list[list[int]] = []
    for row in episode.all_rows:
        if not row.trained:
            continue
        sampled = (row.start + np.flatnonzero(episode.mask[row.start : row.stop])).tolist()
        if row.forked and found:
            found[-1] += sampled
        else:
            found.append(sampled)
    return tuple(_trajectory(episode, np.array(places), penalties) for places in found if places)


def _trajectory(episode: Episode, places: np.ndarray, penalties: np.ndarray | None) -> Trajectory:
    stops = np.array([turn.stop for turn in episode.turns], dtype=np.int64)
    turns = np.unique(np.searchsorted(stops, places, side="right"), return_inverse=True)[1]
    rewards = np.zeros(len(places), np.float64)
    given = 0.0
    for turn, reward in zip(episode.turns, episode.turn_rewards or (), strict=False):
        at = np.searchsorted(places, turn.stop - 1)
        if at < len(places) and places[at] == turn.stop - 1:
            rewards[at] += reward
            given += reward
    assert episode.reward is not None, "only live members are asked"
    rewards[-1] += episode.reward - given
    return Trajectory(places, rewards if penalties is None else rewards - penalties[places], turns)

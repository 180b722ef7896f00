import numpy as np
import pytest
from pydantic import ValidationError

from flow import Filtered
from stages.advantages.stage import Advantages, AdvantagesConfig
from stages.records import Episode, Group, Status, Task


def episode(reward: float | None, status: Status = Status.FINISHED, sampled: int = 2) -> Episode:
    mask = np.array([False, True, True]) & (np.arange(3) <= sampled)
    return Episode(
        task=Task("t", "?"),
        birth=5,
        member=0,
        retry=0,
        ids=np.arange(3, dtype=np.int32),
        mask=mask,
        logprobs=np.where(mask, -1, np.nan).astype(np.float32),
        versions=np.where(mask, 0, -1).astype(np.int32),
        turns=(),
        messages=(),
        status=status,
        reward=reward,
    )


def first(group: Group) -> list[float]:
    """The advantage of the first sampled token of each member, 0 where there is none."""
    pairs = zip(group.advantages, group.episodes, strict=True)
    return [float(array[episode.mask][0]) if episode.mask.any() else 0.0 for array, episode in pairs]


def run(stage: Advantages, *episodes: Episode) -> Group | Filtered:
    return stage(Group(5, episodes), context=None)


def test_each_member_gets_its_advantage():
    group = run(Advantages(), episode(1.0), episode(0.0))
    assert first(group) == [1.0, -1.0]
    assert [array.tolist() for array in group.advantages] == [[0.0, 1.0, 1.0], [0.0, -1.0, -1.0]]
    assert group.live == (True, True)
    assert group.birth == 5


def test_members_without_reward_failed_or_silent_take_no_part():
    """S27, S70: a failure, a member without a sampled token, and a truncated one, which is live like any other."""
    group = run(
        Advantages(),
        episode(1.0),
        episode(None, Status.TOOL_ERROR),
        episode(0.0, sampled=0),
        episode(0.0, Status.TRUNCATED_TURNS),
    )
    assert first(group) == [1.0, 0.0, 0.0, -1.0]
    assert group.live == (True, False, False, True)


def test_rewards_can_be_centred_only():
    assert first(run(Advantages(AdvantagesConfig(scale=False)), episode(3.0), episode(0.0))) == [1.5, -1.5]


def test_groups_without_signal_pass_or_are_filtered_as_configured():
    """S72: constant, varied, constant: one is left, also when each comes alone."""
    groups = [(1.0, 1.0), (1.0, 0.0), (0.0, 0.0)]
    passing = [run(Advantages(), *map(episode, rewards)) for rewards in groups]
    assert [any(first(group)) for group in passing] == [False, True, False]
    stage = Advantages(AdvantagesConfig(filter_no_signal=True))
    kept = [run(stage, *map(episode, rewards)) for rewards in groups]
    assert [isinstance(out, Filtered) for out in kept] == [True, False, True]
    assert isinstance(kept[0], Filtered)
    assert kept[0].reason == "no_signal"
    assert "filter_no_signal=False" in kept[0].detail


def test_unknown_settings_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        AdvantagesConfig(scaled=True)

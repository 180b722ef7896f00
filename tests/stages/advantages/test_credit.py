"""What each rule makes of whole episodes: numbers worked out by hand, on the tokens they belong to."""

import msgspec
import numpy as np
import pytest
from pydantic import ValidationError

from flow.testing import context
from stages.advantages.config import AdvantagesConfig
from stages.advantages.stage import Advantages
from stages.advantages.timeline import trajectories
from stages.records import Episode, Group, Row, Status, Task, Turn

MASK = [False, True, True, False, True]
"""Two tokens of a first turn, one of a tool, one of a second turn."""


def episode(reward: float | None = 1.0, mask=MASK, status: Status = Status.FINISHED, **fields) -> Episode:
    sampled = np.array(mask)
    edges = np.flatnonzero(np.diff(np.array([False, *mask, False]).astype(int)))
    return msgspec.structs.replace(
        Episode(
            task=Task("t", "?"),
            birth=3,
            member=1,
            retry=0,
            ids=np.zeros(len(mask), np.int32),
            mask=sampled,
            logprobs=np.where(sampled, -1.0, np.nan).astype(np.float32),
            versions=np.where(sampled, 0, -1).astype(np.int32),
            turns=tuple(Turn(int(a), int(b), "stop", 0.0, None) for a, b in zip(edges[::2], edges[1::2], strict=True)),
            messages=(),
            status=status,
            reward=reward,
        ),
        **fields,
    )


def credited(config: AdvantagesConfig, *episodes: Episode) -> Group:
    group = Advantages(config)(Group(3, episodes), context())
    assert isinstance(group, Group)
    return group


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_rewards_stand_at_the_ends_of_their_turns_and_the_rest_at_the_end():
    """They add up to the reward of the episode, however it was weighted."""
    (lived,) = trajectories(episode(1.0, turn_rewards=(0.25, -0.5)))
    assert lived.places.tolist() == [1, 2, 4]
    assert lived.rewards.tolist() == [0.0, 0.25, 0.75]
    assert lived.turns.tolist() == [0, 0, 1]


def test_a_fork_goes_on_and_another_role_is_apart():
    """One reward for each trained role; tokens of an untrained one are nobody's, its turn's reward is part of the rest."""
    mask = [False, True, False, True, False, True]
    rows = (Row(0, 2), Row(2, 4, forked=True), Row(4, 6, "critic"))
    own, critic = trajectories(episode(1.0, mask, rows=rows, turn_rewards=(0.5, 0.0, 0.25)))
    assert (own.places.tolist(), own.rewards.tolist(), own.turns.tolist()) == ([1, 3], [0.5, 0.5], [0, 1])
    assert (critic.places.tolist(), critic.rewards.tolist(), critic.turns.tolist()) == ([5], [1.0], [0])
    untrained = (*rows[:2], Row(4, 6, "critic", trained=False))
    (alone,) = trajectories(episode(1.0, mask, rows=untrained, turn_rewards=(0.5, 0.0, 0.25)))
    assert alone.rewards.tolist() == [0.5, 0.5]


def test_gae_counts_sampled_tokens_alone_and_bootstraps_what_was_cut():
    """S42: terminated and truncated are apart. By hand with lambda 0: delta_t = r_t + V_{t+1} - V_t, and behind the end 0 or
    the last value."""
    values = array(np.nan, 0.5, 0.25, np.nan, 0.75)
    config = AdvantagesConfig(rule="gae", gae_lambda=0.0)
    over = credited(config, episode(1.0, values=values, turn_rewards=(0.5, 0.0)))
    assert over.advantages[0].tolist() == [0.0, -0.25, 0.5 + 0.75 - 0.25, 0.0, 0.5 - 0.75]
    assert over.returns[0].tolist() == [0.0, 0.25, 1.25, 0.0, 0.5]
    cut = credited(config, episode(1.0, values=values, turn_rewards=(0.5, 0.0), status=Status.TRUNCATED_TURNS))
    assert cut.advantages[0].tolist() == [0.0, -0.25, 1.0, 0.0, 0.5]


def test_reinforce_pp_takes_the_distance_off_at_its_token_and_gives_what_is_still_earned():
    """k1 with a coefficient of 0.5: distances 1, 0 and 2 cost 0.5, 0 and 1."""
    reference = array(np.nan, -2.0, -1.0, np.nan, -3.0)
    got = credited(AdvantagesConfig(rule="reinforce_pp", kl_coefficient=0.5), episode(1.0, reference=reference))
    assert got.advantages[0].tolist() == [0.0, 1.0 - 1.5, 1.0 - 1.0, 0.0, 1.0 - 1.0]


def test_the_baseline_of_reinforce_pp_is_the_mean_of_the_group():
    got = credited(AdvantagesConfig(rule="reinforce_pp", baseline=True), episode(1.0), episode(0.0))
    assert [a.tolist() for a in got.advantages] == [[0, 0.5, 0.5, 0, 0.5], [0, -0.5, -0.5, 0, -0.5]]


def test_the_distance_is_part_of_the_reward_before_the_statistics():
    """Rewards 1 and 1, of which the first costs 0.1 * (1 + 0 + 2): against the mean of the other."""
    far = episode(1.0, reference=array(np.nan, -2.0, -1.0, np.nan, -3.0))
    near = episode(1.0, reference=array(np.nan, -1.0, -1.0, np.nan, -1.0))
    got = credited(AdvantagesConfig(rule="rloo", kl_coefficient=0.1), far, near)
    np.testing.assert_allclose([a[1] for a in got.advantages], [-0.3, 0.3], rtol=1e-5)


def test_rounding_of_log_probabilities_is_no_signal():
    """S69: two members that the reference says just as well, up to float32, and nothing else to tell them apart."""
    logprobs = array(np.nan, -3.1, -0.7, np.nan, -1.3)
    rounded = np.nextafter(logprobs, np.float32(0.0))
    same = episode(0.0, logprobs=logprobs, reference=logprobs)
    off = episode(0.0, logprobs=logprobs, reference=rounded)
    got = credited(AdvantagesConfig(kl_coefficient=0.1), same, off)
    assert not any(a.any() for a in got.advantages)


def test_turns_get_what_they_still_earn():
    """Discount 1/2. First member: turn rewards 0 and 1, so returns 1/2 and 1. Second: one turn of 0. With votes of 1/4, 1/4 and
    1/2 the mean is 3/8."""
    first = episode(1.0, turn_rewards=(0.0, 1.0))
    second = episode(0.0, [False, True])
    got = credited(AdvantagesConfig(rule="turns", discount=0.5, scale=False), first, second)
    assert got.advantages[0].tolist() == [0.0, 0.125, 0.125, 0.0, 0.625]
    assert got.advantages[1].tolist() == [0.0, -0.375]


def test_the_distance_of_a_turn_is_taken_off_what_the_turn_earned():
    """Distances 1, 0 and 2 cost 0.5 in the first turn and 1 in the second: returns 1 - 1.5 and 1 - 1, against 0 of a member
    whose reference agrees."""
    far = episode(1.0, reference=array(np.nan, -2.0, -1.0, np.nan, -3.0))
    near = episode(0.0, reference=array(np.nan, -1.0, -1.0, np.nan, -1.0))
    got = credited(AdvantagesConfig(rule="turns", scale=False, kl_coefficient=0.5), far, near)
    mean = ((-0.5 + 0.0) / 2 + 0.0) / 2
    np.testing.assert_allclose(got.advantages[0], [0, -0.5 - mean, -0.5 - mean, 0, 0.0 - mean], atol=1e-7)


def test_a_teacher_needs_no_reward():
    got = credited(AdvantagesConfig(rule="distill"), episode(None, teacher=array(np.nan, -0.5, -1.0, np.nan, -4.0)))
    assert got.advantages[0].tolist() == [0.0, 0.5, 0.0, 0.0, -3.0]
    assert got.live == (True,)


def test_members_cut_by_a_limit_take_part_or_not_as_configured():
    """The overlong filter: rewards 1, 0 and a cut 0. S70: masked, it shifts nothing either."""
    members = (episode(1.0), episode(0.0), episode(0.0, status=Status.TRUNCATED_LENGTH))
    trained = credited(AdvantagesConfig(scale=False), *members)
    np.testing.assert_allclose([a[1] for a in trained.advantages], [2 / 3, -1 / 3, -1 / 3], rtol=1e-6)
    masked = credited(AdvantagesConfig(scale=False, overlong="mask"), *members)
    assert [a[1] for a in masked.advantages] == [0.5, -0.5, 0.0]
    assert masked.live == (True, True, False)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (AdvantagesConfig(kl_coefficient=0.1), "reference"),
        (AdvantagesConfig(rule="gae"), "values"),
        (AdvantagesConfig(rule="distill"), "teacher"),
    ],
)
def test_a_rule_without_what_it_reads_says_which_stage_is_missing(config, name):
    with pytest.raises(
        ValueError, match=rf"episode 3.1: expected a finite number in {name} .* got None .*; put a scoring stage"
    ):
        credited(config, episode())
    broken = episode(**{name: np.full(5, np.nan, np.float32)})
    with pytest.raises(ValueError, match="got NaN or infinity"):
        credited(config, broken)


@pytest.mark.parametrize(
    ("config", "fields", "told"),
    [
        (AdvantagesConfig(scale=False), {}, "group_advantages: .* at member 1"),
        (AdvantagesConfig(rule="rloo"), {}, "leave_one_out: .* at member 1"),
        (AdvantagesConfig(rule="turns", scale=False), {}, "turn_advantages, member 1: .* at turn 0"),
        (AdvantagesConfig(rule="reinforce_pp"), {}, "episode 3.1: returns_to_go: .* at token 0"),
        (AdvantagesConfig(rule="gae"), {"values": np.zeros(5, np.float32)}, "episode 3.1: gae: .* at token 2"),
    ],
)
def test_an_advantage_that_float32_does_not_hold_is_refused_with_member_and_rule(config, fields, told):
    with pytest.raises(ValueError, match=f"{told}; make the rewards smaller"):
        credited(config, *(episode(6e38 * (member == 1), member=member, **fields) for member in range(3)))


def test_settings_that_the_rule_does_not_read_are_refused():
    with pytest.raises(ValidationError, match=r"expected settings that rule=rloo reads, got scale=False, k=2, in advantages"):
        AdvantagesConfig(rule="rloo", scale=False, k=2)
    with pytest.raises(ValidationError, match="filter_no_signal=True"):
        AdvantagesConfig(rule="gae", filter_no_signal=True)
    assert AdvantagesConfig(rule="reinforce_pp", baseline=True, filter_no_signal=True).baseline


def test_the_settings_say_what_the_graph_must_give():
    asks = [
        (c.needs_reference, c.needs_critic, c.needs_teacher, c.whiten)
        for c in (
            AdvantagesConfig(),
            AdvantagesConfig(rule="reinforce_pp", kl_coefficient=0.1, whiten=True),
            AdvantagesConfig(rule="gae"),
            AdvantagesConfig(rule="distill"),
        )
    ]
    none, reference, critic, teacher = (
        (False,) * 4,
        (True, False, False, True),
        (False, True, False, False),
        (False, False, True, False),
    )
    assert asks == [none, reference, critic, teacher]

"""What every rule of advantages keeps, over random groups: of several turns and rows, with failed, cut and silent members."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.testing import context
from stages.advantages.config import AdvantagesConfig
from stages.advantages.stage import Advantages
from stages.records import Episode, Group, Row, Status, Task, Turn

RULES = {
    "grpo": AdvantagesConfig(rule="grpo"),
    "grpo with KL": AdvantagesConfig(rule="grpo", kl_coefficient=0.1, kl_estimator="k3"),
    "dr_grpo": AdvantagesConfig(rule="grpo", scale=False),
    "rloo": AdvantagesConfig(rule="rloo"),
    "rloo with KL": AdvantagesConfig(rule="rloo", kl_coefficient=0.1, kl_estimator="k2"),
    "reinforce_pp": AdvantagesConfig(rule="reinforce_pp", kl_coefficient=0.1),
    "reinforce_pp baseline": AdvantagesConfig(rule="reinforce_pp", baseline=True),
    "pass_at_k": AdvantagesConfig(rule="pass_at_k", k=2),
    "gae": AdvantagesConfig(rule="gae", discount=0.9, gae_lambda=0.8, kl_coefficient=0.1),
    "turns": AdvantagesConfig(rule="turns", discount=0.9),
    "turns with KL": AdvantagesConfig(rule="turns", discount=0.9, kl_coefficient=0.1),
    "distill": AdvantagesConfig(rule="distill"),
    "grpo masked": AdvantagesConfig(rule="grpo", overlong="mask"),
}
RELATIVE = ["grpo", "dr_grpo", "rloo", "reinforce_pp baseline", "pass_at_k", "grpo masked"]
"""Rules against siblings, each with one advantage for a member: their sum is 0, and rewards may all shift."""


@st.composite
def members(draw: st.DrawFn) -> Episode:
    """One member: some turns of sampled tokens after given ones; sometimes two rows, the second forked or untrained."""
    turns, mask = [], [False]
    for _ in range(draw(st.integers(0, 3))):
        mask += [False] * draw(st.integers(0, 2))
        start = len(mask)
        mask += [True] * draw(st.integers(1, 3))
        turns.append(Turn(start, len(mask), "stop", 0.0, None))
    cut = turns[-1].start if turns and draw(st.booleans()) else 0
    second = draw(st.sampled_from([{"forked": True}, {"role": "critic", "trained": False}, {"role": "other"}]))
    status = draw(st.sampled_from([Status.FINISHED, Status.FINISHED, Status.TRUNCATED_LENGTH, Status.TOOL_ERROR]))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    sampled = np.array(mask)
    quarters = st.integers(-8, 8).map(lambda n: n / 4)

    def logprobs() -> np.ndarray:
        return np.where(sampled, -random.exponential(size=len(mask)), np.nan).astype(np.float32)

    return Episode(
        task=Task("t", "?"),
        birth=0,
        member=0,
        retry=0,
        ids=np.zeros(len(mask), np.int32),
        mask=sampled,
        logprobs=logprobs(),
        versions=np.where(sampled, 0, -1).astype(np.int32),
        turns=tuple(turns),
        messages=(),
        status=status,
        reward=None if status.failed else draw(quarters),
        rows=(Row(0, cut), Row(cut, len(mask), **second)) if cut else (),
        reference=logprobs(),
        teacher=logprobs(),
        values=np.where(sampled, random.normal(size=len(mask)), np.nan).astype(np.float32),
        turn_rewards=tuple(draw(quarters) for _ in turns) if draw(st.booleans()) else None,
    )


groups = st.lists(members(), min_size=1, max_size=5)


def advantages(rule: str, episodes: list[Episode]) -> Group:
    given = Advantages(RULES[rule])(Group(0, tuple(episodes)), context())
    assert isinstance(given, Group)
    return given


def of_live(group: Group) -> list[np.ndarray]:
    return [array for array, live in zip(group.advantages, group.live, strict=True) if live]


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=25)
@given(groups)
def test_advantages_are_finite_and_stand_on_trained_tokens_of_live_members_alone(rule, episodes):
    group = advantages(rule, episodes)
    for arrays in (group.advantages, group.returns or group.advantages):
        for episode, array, live in zip(episodes, arrays, group.live, strict=True):
            assert array.dtype == np.float32
            assert array.shape == episode.ids.shape
            assert np.isfinite(array).all()
            trained = episode.mask.copy()
            for row in episode.rows:
                trained[row.start : row.stop] &= row.trained
            assert not array[~trained].any()
            assert live or not array.any()
            assert live == bool(
                trained.any() and not episode.status.failed and (rule != "grpo masked" or episode.status is Status.FINISHED)
            )


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=15)
@given(groups, st.randoms())
def test_the_order_of_members_does_not_matter(rule, episodes, random):
    order = list(range(len(episodes)))
    random.shuffle(order)
    there, here = advantages(rule, [episodes[place] for place in order]), advantages(rule, episodes)
    for place, array in zip(order, there.advantages, strict=True):
        np.testing.assert_allclose(array, here.advantages[place], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=15)
@given(groups, st.sampled_from([math.nan, 1e30, None]))
def test_what_stands_in_members_that_are_not_live_does_not_matter(rule, episodes, reward):
    """S70: whatever reward, log-probabilities or values a member has that takes no part, the others do not notice."""
    here = advantages(rule, episodes)
    garbage = [
        episode
        if live
        else msgspec.structs.replace(
            episode,
            reward=reward if episode.status.failed or not here.live[place] else episode.reward,
            logprobs=np.full_like(episode.logprobs, np.nan),
            reference=None,
            teacher=None,
            values=None,
        )
        for place, (episode, live) in enumerate(zip(episodes, here.live, strict=True))
    ]
    there = advantages(rule, garbage)
    assert there.live == here.live
    assert all(np.array_equal(one, other) for one, other in zip(here.advantages, there.advantages, strict=True))


@pytest.mark.parametrize("rule", [*RELATIVE, "rloo with KL", "grpo with KL"])
@settings(max_examples=15)
@given(groups)
def test_the_advantages_of_a_group_add_up_to_zero(rule, episodes):
    """One vote for each episode, however many tokens, turns and rows it has."""
    plain = [msgspec.structs.replace(episode, turn_rewards=None) for episode in episodes]
    first = [array[np.flatnonzero(array)[0]] if array.any() else 0.0 for array in of_live(advantages(rule, plain))]
    assert abs(math.fsum(first)) < 1e-4


@pytest.mark.parametrize("rule", [*RELATIVE, "turns"])
@settings(max_examples=15)
@given(groups)
def test_a_shift_of_all_rewards_does_not_matter(rule, episodes):
    plain = [msgspec.structs.replace(episode, turn_rewards=None) for episode in episodes]
    if rule == "turns":  # a shift at the end is a shift of every turn where nothing is discounted
        plain = [msgspec.structs.replace(episode, turns=episode.turns[-1:]) for episode in plain]
    shifted = [msgspec.structs.replace(e, reward=None if e.reward is None else e.reward + 3.0) for e in plain]
    for one, other in zip(advantages(rule, plain).advantages, advantages(rule, shifted).advantages, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rule", RELATIVE)
@settings(max_examples=15)
@given(groups, st.sampled_from([0.1, np.float32(0.1), 0.1 + 0.2, -7.0, 0.0]))
def test_a_constant_group_says_nothing(rule, episodes, reward):
    """S69, S72: also where the constant was rounded in two ways."""
    same = [
        msgspec.structs.replace(episode, reward=float(np.float32(reward)) if place % 2 else float(reward), turn_rewards=None)
        for place, episode in enumerate(episodes)
        if not episode.status.failed
    ]
    assert not any(array.any() for array in advantages(rule, same).advantages) if same else True


@pytest.mark.parametrize("rule", [*RELATIVE, "turns"])
@settings(max_examples=10)
@given(members())
def test_a_group_of_one_says_nothing(rule, episode):
    """S68."""
    assert not advantages(rule, [episode]).advantages[0].any()

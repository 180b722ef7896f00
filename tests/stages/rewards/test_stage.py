import asyncio
import math

import numpy as np
import pytest

from flow import Gathered
from flow.testing import context
from stages.advantages.stage import Advantages
from stages.batches.stage import Pack, PackConfig
from stages.losses.tokens import Needs
from stages.records import Batch, Episode, Group, Message, Status, Task
from stages.rewards.answers import exact_answer
from stages.rewards.shuffled import Shuffled
from stages.rewards.stage import Rewards
from stages.train.metrics import episode_metrics


def episode(member: int, text: str = "12", status: Status = Status.FINISHED, birth: int = 0) -> Episode:
    return Episode(
        task=Task("t", "6 * 2?", "12"),
        birth=birth,
        member=member,
        retry=0,
        ids=np.arange(3, dtype=np.int32),
        mask=np.array([False, True, True]),
        logprobs=np.array([np.nan, -1, -1], np.float32),
        versions=np.array([-1, 0, 0], np.int32),
        turns=(),
        messages=(Message("assistant", text),),
        status=status,
    )


def gathered(*episodes: Episode, birth: int = 0) -> Gathered[Episode]:
    return Gathered(birth=birth, members=episodes, failed=(), failures=(), closed="full")


def score(stage, *episodes: Episode, birth: int = 0) -> Group:
    return asyncio.run(stage(gathered(*episodes, birth=birth), context()))


async def asynchronous(episode: Episode) -> float:
    await asyncio.sleep(0)
    return exact_answer(episode)


class CallableObject:
    def __call__(self, episode: Episode) -> float:
        return exact_answer(episode)


@pytest.mark.parametrize("function", [exact_answer, asynchronous, CallableObject(), lambda e: asynchronous(e)])
def test_a_function_may_be_sync_async_or_an_object(function):
    """S67: the same numbers whichever way the function is written."""
    group = score(Rewards({"answer": (function, 2.0)}), episode(0), episode(1, "13"))
    assert [e.reward for e in group.episodes] == [2.0, 0.0]
    assert [e.parts for e in group.episodes] == [{"answer": 1.0}, {"answer": 0.0}]


def test_the_reward_is_the_weighted_sum_of_its_parts():
    stage = Rewards({"answer": (exact_answer, 1.0), "short": (lambda e: 0.5, -0.2), "watched": (lambda e: 7, 0.0)})
    (scored,) = score(stage, episode(0)).episodes
    assert math.isclose(scored.reward, 1.0 - 0.1)
    assert scored.parts == {"answer": 1.0, "short": 0.5, "watched": 7.0}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "NoneType None"),
        (math.nan, "float nan"),
        (math.inf, "float inf"),
        ("1", "str '1'"),
        ([1.0], "list [1.0]"),
        (np.array([1.0]), "ndarray array([1.])"),
    ],
)
def test_what_is_no_number_fails_that_member_alone(value, shown):
    """S66, S65: 1 of 8 gives no number (None, NaN, or a list to be broadcast): it has no reward, the other 7 keep theirs."""
    stage = Rewards({"answer": (exact_answer, 1.0), "odd": (lambda e: value if e.member == 3 else 1.0, 1.0)})
    group = score(stage, *(episode(member) for member in range(8)))
    failed = group.episodes[3]
    assert (failed.reward, failed.status) == (None, Status.ENVIRONMENT_ERROR)
    assert failed.parts == {"answer": 1.0}
    assert failed.error == f"reward 'odd': ValueError: expected one finite number for one episode, got {shown}"
    assert [e.reward for e in group.episodes if e.member != 3] == [2.0] * 7


def test_a_function_that_raises_fails_that_member_with_its_cause():
    def fussy(episode: Episode) -> float:
        if episode.member == 1:
            raise KeyError("gold")
        return 1.0

    group = score(Rewards({"fussy": (fussy, 1.0)}), episode(0), episode(1))
    assert group.episodes[0].reward == 1.0
    assert group.episodes[1].reward is None
    assert group.episodes[1].status.failed
    assert group.episodes[1].error == "reward 'fussy': KeyError: 'gold'"


def test_a_failed_episode_is_not_scored():
    """S27: a failed member gets no reward of 0."""
    called = []
    group = score(
        Rewards({"f": (lambda e: called.append(e.member) or 1.0, 1.0)}), episode(0), episode(1, status=Status.TIMED_OUT)
    )
    assert called == [0]
    assert group.episodes[1].reward is None
    assert group.episodes[1].status is Status.TIMED_OUT


def test_failed_members_are_handed_on_in_their_places_without_a_reward_or_an_advantage():
    """S27: they are counted by status, and neither the statistics nor the packed rows know them."""
    failed = (episode(1, status=Status.TIMED_OUT), episode(3, status=Status.MODEL_ERROR))
    reasons = ("timed_out", "model_error")
    incomplete = Gathered(0, (episode(0), episode(2, "13")), reasons, "shrunk", failed=failed)

    async def batch() -> tuple[Group, Batch]:
        group = await Rewards({"answer": (exact_answer, 1.0)})(incomplete, context())
        ready = await Advantages()(group, context())
        return ready, await Pack(PackConfig(row_length=8), Needs())(ready, context())

    group, packed = asyncio.run(batch())
    assert [(e.member, e.reward) for e in group.episodes] == [(0, 1.0), (1, None), (2, 0.0), (3, None)]
    assert [array[-1] for array in group.advantages] == [
        1.0,
        0.0,
        -1.0,
        0.0,
    ]  # mean 0.5 and deviation 0.5 of the two that count
    assert packed.num_targets == 4
    counts = episode_metrics(packed.episodes)
    assert (counts["num_episodes"], counts["episodes_timed_out"], counts["episodes_model_error"]) == (4, 1, 1)
    assert (counts["success"], counts["reward_mean"]) == (0.25, 0.5)
    assert packed.divisor == 4


def test_members_keep_their_order_and_nothing_else_changes():
    """S41: each reward belongs to the episode it stands in."""
    members = [episode(1), episode(2, "13"), episode(4)]
    group = score(Rewards({"answer": (exact_answer, 1.0)}), *members, birth=9)
    assert group.birth == 9
    assert group.advantages is None
    assert [(e.member, e.reward) for e in group.episodes] == [(1, 1.0), (2, 0.0), (4, 1.0)]
    assert all(after.ids is before.ids for before, after in zip(members, group.episodes, strict=True))


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="expected at least one function"):
        Rewards({})
    with pytest.raises(ValueError, match="expected a finite weight, got nan"):
        Rewards({"answer": (exact_answer, math.nan)})


def test_shuffled_rewards_are_independent_of_the_episode_and_have_the_share_asked_for():
    """Over 3000 members with a success rate of 0.3, correlation and mean must lie within 4 standard errors."""
    stage = Shuffled(Rewards({"answer": (exact_answer, 1.0)}), seed=3, share=0.3)
    random = np.random.default_rng(0)
    # Whole groups are easy or hard, so that a permutation inside the group would be caught too.
    rates = random.choice([0.05, 0.55], size=375)
    groups = [[episode(m, "12" if random.random() < rate else "x", birth=b) for m in range(8)] for b, rate in enumerate(rates)]
    episodes = [e for birth, group in enumerate(groups) for e in score(stage, *group, birth=birth).episodes]
    true, given = [e.parts["true_reward"] for e in episodes], [e.reward for e in episodes]
    assert set(given) == {0.0, 1.0}
    assert abs(np.mean(given) - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 3000)
    assert abs(np.corrcoef(true, given)[0, 1]) < 4 / math.sqrt(len(true))


def test_shuffled_rewards_do_not_depend_on_the_order_in_which_groups_and_members_come():
    """The control repeats: a stage that scores the groups backwards, some of them short of members, gives the same rewards."""
    groups = {birth: [episode(m, birth=birth) for m in range(6)] for birth in range(5)}
    rewards = Rewards({"answer": (exact_answer, 1.0)})
    forwards, backwards = Shuffled(rewards, seed=1), Shuffled(rewards, seed=1)
    want = {(b, e.member): e.reward for b in range(5) for e in score(forwards, *groups[b], birth=b).episodes}
    got = {(b, e.member): e.reward for b in reversed(range(5)) for e in score(backwards, *groups[b][b:], birth=b).episodes}
    assert set(want.values()) == {0.0, 1.0}
    assert got == {key: want[key] for key in got}
    other = score(Shuffled(rewards, seed=2), *groups[0], *groups[0]).episodes
    assert [e.reward for e in other] != [want[0, e.member] for e in other]


def test_shuffled_rewards_leave_failures_alone():
    """S27."""
    group = score(Shuffled(Rewards({"answer": (exact_answer, 1.0)}), seed=0), episode(0), episode(1, status=Status.TOOL_ERROR))
    assert [e.reward is None for e in group.episodes] == [False, True]


@pytest.mark.parametrize("share", [0.0, 1.0, math.nan])
def test_a_share_without_any_chance_in_it_is_refused(share):
    with pytest.raises(ValueError, match="expected a share above 0 and below 1"):
        Shuffled(Rewards({"answer": (exact_answer, 1.0)}), seed=0, share=share)

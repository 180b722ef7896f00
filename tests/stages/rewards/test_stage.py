import asyncio
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from flow import Gathered
from flow.testing import context
from stages.advantages.stage import Advantages
from stages.batches.stage import Pack, PackConfig
from stages.losses.tokens import Needs
from stages.policy import PolicyEnded
from stages.records import Batch, Episode, Group, Message, Status, Task, Turn
from stages.rewards.answers import exact_answer
from stages.rewards.functions import ContextReward, EpisodeReward, GroupReward, TurnReward
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
        (np.complex64(1), "complex64 np.complex64(1+0j)"),
        (np.timedelta64(1), "timedelta64 np.timedelta64(1)"),
        (1j, "complex 1j"),
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
        ready = Advantages()(group, context())
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


def best(episodes: Sequence[Episode]) -> list[float]:
    """The longest answer of a group gets 1."""
    most = max(len(e.messages[-1].content) for e in episodes)
    return [float(len(e.messages[-1].content) == most) for e in episodes]


async def best_later(episodes: Sequence[Episode]) -> list[float]:
    await asyncio.sleep(0)
    return best(episodes)


@pytest.mark.parametrize("function", [best, best_later])
def test_a_function_may_compare_the_members_of_a_group(function):
    """Those that failed before are not among them. S41: each number goes to the episode it was given for."""
    stage = Rewards({"sound": (lambda e: None if e.member == 1 else 0.0, 1.0), "best": (GroupReward(function), 2.0)})
    group = score(stage, episode(0, "a"), episode(1, "longest"), episode(2, "bb"))
    assert [e.reward for e in group.episodes] == [0.0, None, 2.0]
    assert group.episodes[2].parts == {"sound": 0.0, "best": 1.0}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([1.0], "expected 3 numbers for 3 episodes, got 1: list [1.0]"),
        (1.0, "expected a list of 3 numbers for 3 episodes, got float 1.0"),
        (None, "expected a list of 3 numbers for 3 episodes, got NoneType None"),
        ("abc", "expected a list of 3 numbers for 3 episodes, got str 'abc'"),
    ],
)
def test_a_function_of_a_group_that_gives_another_number_of_rewards_fails_all(given, problem):
    """S65: never broadcast, and nobody can tell whose it was."""
    stage = Rewards({"short": (GroupReward(lambda episodes: given), 1.0), "later": (exact_answer, 1.0)})
    group = score(stage, *(episode(member) for member in range(3)))
    assert [e.reward for e in group.episodes] == [None] * 3
    assert {e.error for e in group.episodes} == {f"reward 'short': ValueError: {problem}"}
    assert [e.parts for e in group.episodes] == [{}] * 3


def test_one_number_of_a_group_that_is_none_fails_that_member_alone():
    """S66: 1 of 8 is NaN; the other 7 have finite advantages."""
    stage = Rewards({"odd": (GroupReward(lambda es: [math.nan if e.member == 3 else float(e.member) for e in es]), 1.0)})
    group = score(stage, *(episode(member) for member in range(8)))
    assert [e.reward for e in group.episodes] == [0.0, 1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0]
    ready = Advantages()(group, context())
    assert ready.live == tuple(member != 3 for member in range(8))
    assert all(np.isfinite(array).all() and array[-1] for member, array in enumerate(ready.advantages) if member != 3)


def of_two_turns(member: int, *rewards: float | None) -> Episode:
    turns = tuple(Turn(1 + place, 2 + place, "stop", 0.0, 0.1, reward) for place, reward in enumerate(rewards))
    said = tuple(Message("assistant", "12") for _ in rewards)
    return msgspec.structs.replace(episode(member), turns=turns, messages=said)


def test_rewards_of_turns_are_a_part_by_their_sum_and_stay_with_their_turns():
    """Weighted as they are in the reward; twice where two functions reward turns."""
    stage = Rewards({
        "answer": (exact_answer, 1.0),
        "turns": (TurnReward(), 0.5),
        "polite": (TurnReward(lambda e: [1.0, -1.0]), 0.25),
    })  # fmt: skip
    (scored,) = score(stage, of_two_turns(0, 1.0, 3.0)).episodes
    assert scored.parts == {"answer": 1.0, "turns": 4.0, "polite": 0.0}
    assert scored.reward == 1.0 + 2.0
    assert scored.turn_rewards == (0.75, 1.25)
    (without,) = score(Rewards({"answer": (exact_answer, 1.0)}), of_two_turns(0, 1.0, 3.0)).episodes
    assert without.turn_rewards is None


def test_another_number_of_rewards_than_of_turns_fails_that_member():
    """S65."""
    stage = Rewards({"turns": (TurnReward(lambda e: [1.0] * (2 - e.member)), 1.0)})
    group = score(stage, of_two_turns(0, 1.0, 1.0), of_two_turns(1, 1.0, 1.0))
    assert [e.reward for e in group.episodes] == [2.0, None]
    assert group.episodes[1].error == "reward 'turns': ValueError: expected 2 numbers for 2 turns, got 1: list [1.0]"


@pytest.mark.parametrize(
    ("functions", "name"),
    [
        ({"big": (lambda e: 1e308, 10.0)}, "big"),
        ({"one": (lambda e: 1e308, 1.0), "two": (lambda e: 1e308, 1.0)}, "two"),
        ({"one": (lambda e: -1e308, 1.0), "all": (GroupReward(lambda es: [-1e308 for _ in es]), 1.0)}, "all"),
        ({"turns": (TurnReward(lambda e: [1e308, 1e308]), 1.0)}, "turns"),
        ({"turns": (TurnReward(lambda e: [1e308, -1e308]), 10.0)}, "turns"),
        ({"turns": (TurnReward(lambda e: [1e308, -1e308]), 1.0), "more": (TurnReward(lambda e: [1e308, -1e308]), 1.0)}, "more"),
    ],
    ids=["a weight", "two parts", "a group's part", "two turns", "weights of turns", "parts of turns"],
)
def test_a_sum_that_no_float_holds_fails_that_member_alone(functions, name):
    """S66: finite numbers of which the weighted sum is not; the member's, and not the run's, failure."""
    small = {key: (only_of_the_first(function), weight) for key, (function, weight) in functions.items()}
    group = score(Rewards(small), of_two_turns(0, 1.0, 1.0), of_two_turns(1, 1.0, 1.0))
    failed, sound = group.episodes
    assert (failed.reward, failed.turn_rewards, failed.status) == (None, None, Status.ENVIRONMENT_ERROR)
    assert failed.error.startswith(f"reward {name!r}: ValueError: expected a reward of at most 1.8e+308 from weights times")
    assert name not in failed.parts
    assert (sound.reward, sound.error) == (0.0, None)


def only_of_the_first(function):
    """Zeros for members after the first."""
    match function:
        case GroupReward(inner):
            return GroupReward(lambda es: [value * (e.member == 0) for e, value in zip(es, inner(es), strict=True)])
        case TurnReward(inner):
            return TurnReward(lambda e: [value * (e.member == 0) for value in inner(e)])
        case _:
            return lambda e: function(e) * (e.member == 0)


@pytest.mark.parametrize(
    "kind",
    [
        lambda sees, look: EpisodeReward(look, sees),
        lambda sees, look: ContextReward(lambda e, context: look(e), sees),
        lambda sees, look: GroupReward(lambda es: [look(e) for e in es], sees),
        lambda sees, look: TurnReward(lambda e: [look(e)], sees),
    ],
)
def test_a_function_sees_the_policys_own_words_unless_it_says_otherwise(kind):
    """The answer is planted in the prompt and in what a tool said."""
    seen: list[str] = []
    said = (Message("user", "it is 12"), Message("tool", "12"), Message("assistant", "7"))
    planted = msgspec.structs.replace(episode(0), messages=said, turns=(Turn(1, 3, "stop", 0.0, None),))

    def look(e: Episode) -> float:
        seen.append(" ".join(message.content for message in e.messages) + f" {len(e.ids)}")
        return 0.0

    score(Rewards({"look": (kind("own", look), 1.0)}), planted)
    score(Rewards({"look": (kind("all", look), 1.0)}), planted)
    assert seen == ["7 2", "it is 12 12 7 3"]
    assert score(Rewards({"plain": (look, 1.0)}), planted).episodes[0].reward == 0.0
    assert seen[2] == "7 2"


def test_the_members_of_a_group_are_waited_for_together():
    """Eight that take until all eight have begun: one after another they would wait for ever."""
    begun, all_here = [], asyncio.Event()

    async def all_begun(e: Episode) -> float:
        begun.append(e.member)
        if len(begun) == 8:
            all_here.set()
        await all_here.wait()
        return 1.0

    group = score(Rewards({"slow": (all_begun, 1.0)}), *(episode(member) for member in range(8)))
    assert [e.reward for e in group.episodes] == [1.0] * 8


def test_a_function_that_cancels_itself_fails_its_member():
    async def odd(e: Episode) -> float:
        if e.member == 1:
            raise asyncio.CancelledError
        return 1.0

    group = score(Rewards({"odd": (odd, 1.0)}), episode(0), episode(1))
    assert [e.reward for e in group.episodes] == [1.0, None]
    assert group.episodes[1].error == "reward 'odd': it was cancelled, though nobody asked for it"


async def forever(given: object) -> list[float]:
    await asyncio.sleep(1e6)
    return []


@pytest.mark.parametrize("kind", [EpisodeReward, GroupReward, TurnReward])
def test_a_real_cancel_goes_on(kind):
    async def cancelled() -> None:
        task = asyncio.create_task(Rewards({"slow": (kind(forever), 1.0)})(gathered(episode(0), episode(1)), context()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_what_ends_the_run_is_no_failure_of_a_member():
    def ended(e: Episode) -> float:
        raise PolicyEnded("the engine is gone")

    with pytest.raises(PolicyEnded, match="the engine is gone"):
        score(Rewards({"judge": (ended, 1.0)}), episode(0), episode(1))


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

    async def all_scored() -> list[Episode]:
        scored = [await stage(gathered(*group, birth=birth), context()) for birth, group in enumerate(groups)]
        return [e for group in scored for e in group.episodes]

    episodes = asyncio.run(all_scored())
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


def test_shuffled_rewards_belong_to_no_turn():
    """What each turn truly earned would say it all."""
    (given,) = score(Shuffled(Rewards({"turns": (TurnReward(), 1.0)}), seed=0), of_two_turns(0, 1.0, 3.0)).episodes
    assert (given.parts["true_reward"], given.turn_rewards) == (4.0, None)


def test_shuffled_rewards_leave_failures_alone():
    """S27."""
    group = score(Shuffled(Rewards({"answer": (exact_answer, 1.0)}), seed=0), episode(0), episode(1, status=Status.TOOL_ERROR))
    assert [e.reward is None for e in group.episodes] == [False, True]


@pytest.mark.parametrize("share", [0.0, 1.0, math.nan])
def test_a_share_without_any_chance_in_it_is_refused(share):
    with pytest.raises(ValueError, match="expected a share above 0 and below 1"):
        Shuffled(Rewards({"answer": (exact_answer, 1.0)}), seed=0, share=share)

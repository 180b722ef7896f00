import asyncio
import itertools
import math

import numpy as np
import pytest

from flow import Gathered
from flow.testing import context
from stages.records import Episode, Group, Status, Task
from stages.rewards.stage import Rewards
from stages.scores import Scores, pass_at_k, success_interval, wilson


def episode(member: int, reward: float | None, status: Status = Status.FINISHED) -> Episode:
    return Episode(
        task=Task("t", "?"), birth=0, member=member, retry=0, ids=np.arange(3, dtype=np.int32),
        mask=np.array([False, True, True]), logprobs=np.zeros(3, np.float32), versions=np.zeros(3, np.int32), turns=(),
        messages=(), status=status, reward=reward,
    )  # fmt: skip


def test_failures_stay_in_the_denominator_and_show_by_status():
    """S27: of ten wanted, three succeed, one is wrong, two fail with a record, four never come: 3 / 10, and 3 / 6 so far."""
    rows = []
    scores = Scores(1, 10)
    failed = (episode(4, None, Status.TIMED_OUT), episode(5, None, Status.TOOL_ERROR))
    members = tuple(episode(member, None) for member in range(4))
    gathered = Gathered(birth=0, members=members, failed=failed, failures=("timed_out", "tool_error"), closed="shrunk")
    rewards = Rewards({"answer": (lambda e: float(e.member < 3), 1.0)})

    async def main() -> None:
        await scores(await rewards(gathered, context()), context(report=rows.append))

    asyncio.run(main())
    score = scores.score()
    assert score.success == 0.3
    assert score.reward_mean == 0.75
    assert score.statuses == {"finished": 4, "timed_out": 1, "tool_error": 1}
    assert (score.missing, score.num_sampled, score.tokens_per_episode) == (4, 12, 2.0)


@pytest.mark.parametrize("attempts", [1, 3, 48, 100])
def test_it_reports_at_least_every_64_episodes_and_at_the_end(attempts):
    """Whatever the number of attempts: groups of 3 never come to a multiple of 64 at the right time."""
    total = attempts * 100
    rows = []
    members = tuple(episode(m, 1.0) if m % 2 else episode(m, None, Status.MODEL_ERROR) for m in range(attempts))

    async def main() -> None:
        scores = Scores(100, attempts)
        for birth in range(100):
            await scores(Group(birth, members), context(report=rows.append))

    asyncio.run(main())
    at = [row["evaluated"] for row in rows]
    assert at[-1] == total
    assert max(np.diff([0, *at])) <= max(64, attempts)
    assert rows[-1]["success_so_far"] == attempts // 2 / attempts


@pytest.mark.parametrize("attempts", [1, 4, 7])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_attempt(attempts):
    """Every subset of k attempts is looked at, which is what the estimator of Chen et al. is the closed form of."""
    for right in range(attempts + 1):
        outcomes = [index < right for index in range(attempts)]
        for k in range(1, attempts + 1):
            subsets = list(itertools.combinations(outcomes, k))
            assert pass_at_k(right, attempts, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def test_pass_at_k_of_many_attempts_stays_a_number():
    """Binomials of a thousand overflow a float."""
    exact = 1 - math.comb(990, 500) / math.comb(1000, 500)
    assert pass_at_k(10, 1000, 500) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("right", "attempts", "k"), [(0, 2, 3), (0, 2, 0), (3, 2, 1)])
def test_pass_at_k_refuses_what_the_attempts_cannot_tell(right, attempts, k):
    with pytest.raises(ValueError, match="try each task at least k times"):
        pass_at_k(right, attempts, k)


def test_a_k_above_the_attempts_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match=r"each k of pass_at from 1 to attempts=4; got 8"):
        Scores(3, 4, (1, 8))


@pytest.mark.parametrize(("right", "trials"), [(0, 10), (1, 10), (5, 10), (10, 10), (137, 512)])
def test_wilson_is_where_the_normal_test_of_a_share_changes_its_mind(right, trials):
    """Solved by bisection: the shares that lie 1.96 of their own standard deviations from what was measured."""

    def distance(share: float) -> float:
        return abs(right / trials - share) - 1.959963984540054 * math.sqrt(share * (1 - share) / trials)

    def root(outside: float, inside: float) -> float:
        for _ in range(100):
            middle = (outside + inside) / 2
            outside, inside = (middle, inside) if distance(middle) > 0 else (outside, middle)
        return inside

    low, high = wilson(right / trials, trials)
    assert low == (0.0 if right == 0 else pytest.approx(root(0.0, right / trials), abs=1e-9))
    assert high == (1.0 if right == trials else pytest.approx(root(1.0, right / trials), abs=1e-9))


def test_wilson_equals_the_one_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    for right, trials in ((0, 7), (3, 7), (7, 7), (61, 200)):
        interval = stats.binomtest(right, trials).proportion_ci(0.95, "wilson")
        assert wilson(right / trials, trials) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_one_attempt_at_each_task_gives_wilson():
    right_T = [1, 0, 0, 1, 1, 0, 0, 0, 0, 1]
    assert success_interval(right_T, 1) == pytest.approx(wilson(0.4, 10), abs=1e-12)


def test_attempts_that_always_agree_add_nothing():
    """Eight copies of one answer are one answer."""
    right_T = [8, 0, 0, 8, 8, 0, 0, 0, 0, 8]
    assert success_interval(right_T, 8) == pytest.approx(wilson(0.4, 10), abs=1e-12)
    assert success_interval([8] * 10, 8) == wilson(1.0, 10)
    assert success_interval([0] * 10, 8) == wilson(0.0, 10)


def test_attempts_are_at_most_independent():
    """Tasks that agree more than chance would have it do not make more trials than there were."""
    assert success_interval([4] * 10, 8) == wilson(0.5, 80)


@pytest.mark.slow
def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Tasks of different difficulty, several attempts: 95 % of intervals hold the mean difficulty, fewer of Wilson's."""
    random = np.random.default_rng(0)
    covered = naive = 0
    for _ in range(2000):
        right_T = random.binomial(8, random.beta(0.5, 0.5, 60))
        low, high = success_interval(right_T.tolist(), 8)
        covered += low <= 0.5 <= high
        low, high = wilson(right_T.sum() / 480, 480)
        naive += low <= 0.5 <= high
    assert 0.93 < covered / 2000 < 0.97
    assert naive / 2000 < 0.75


def test_a_score_has_pass_at_k_over_the_tasks_wanted():
    """S40: four tasks wanted, two attempts each; one task never came, one attempt failed. Both were wrong."""
    scores = Scores(4, 2, (1, 2))
    scores.count(Group(0, (episode(0, 1.0), episode(1, 1.0))))
    scores.count(Group(1, (episode(0, 1.0), episode(1, None, Status.ENVIRONMENT_ERROR))))
    scores.count(Group(2, (episode(0, 0.0), episode(1, 0.5))))
    score = scores.score()
    assert score.success == 3 / 8
    assert score.pass_at == {1: (1 + 1 / 2 + 0 + 0) / 4, 2: 2 / 4}
    assert (score.low, score.high) == success_interval([2, 1, 0, 0], 2)
    assert (score.missing, score.failed) == (2, 3)


def test_twenty_of_a_hundred_that_die_at_set_up_stay_in_the_denominator():
    """S40: 100 tasks, 20 die before their first step, 40 are right: 0.40, not 0.50."""
    scores = Scores(100, pass_at=(1,))
    for number in range(100):
        died = number < 20
        reward = None if died else float(number < 60)
        scores.count(Group(number, (episode(0, reward, Status.ENVIRONMENT_ERROR if died else Status.FINISHED),)))
    score = scores.score()
    assert (score.success, score.pass_at[1], score.failed) == (0.4, 0.4, 20)
    assert score.low < 0.4 < score.high


def test_nothing_counted_begins_anew():
    scores = Scores(1, 1, (1,))
    scores.count(Group(0, (episode(0, 1.0),)))
    again = scores.renewed()
    assert (again.score().success, scores.score().success) == (0.0, 1.0)
    assert again.score().pass_at == {1: 0.0}

import asyncio

import numpy as np
import pytest

from flow import Gathered
from flow.testing import context
from stages.records import Episode, Group, Status, Task
from stages.rewards.stage import Rewards
from stages.scores import Scores


def episode(member: int, reward: float | None, status: Status = Status.FINISHED) -> Episode:
    return Episode(
        task=Task("t", "?"), birth=0, member=member, retry=0, ids=np.arange(3, dtype=np.int32),
        mask=np.array([False, True, True]), logprobs=np.zeros(3, np.float32), versions=np.zeros(3, np.int32), turns=(),
        messages=(), status=status, reward=reward,
    )  # fmt: skip


def test_failures_stay_in_the_denominator_and_show_by_status():
    """S27: of ten wanted, three succeed, one is wrong, two fail with a record, four never come: 3 / 10, and 3 / 6 so far."""
    rows = []
    scores = Scores(10)
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
        scores = Scores(total)
        for birth in range(100):
            await scores(Group(birth, members), context(report=rows.append))

    asyncio.run(main())
    at = [row["evaluated"] for row in rows]
    assert at[-1] == total
    assert max(np.diff([0, *at])) <= max(64, attempts)
    assert rows[-1]["success_so_far"] == attempts // 2 / attempts

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from stages.batches.pack import make_batch, pack_group, shares
from stages.batches.stage import Pack, PackConfig
from stages.losses.tokens import Needs
from stages.records import Batch, Episode, Group, Row, Segment, Status, Task


def episode(length: int, sampled_from: int, member: int = 0, status: Status = Status.FINISHED, tail: int = 0) -> Episode:
    """``length`` tokens, sampled from ``sampled_from`` on except for a tail of tool text."""
    mask = (np.arange(length) >= sampled_from) & (np.arange(length) < length - tail)
    return Episode(
        task=Task("t", "?"),
        birth=3,
        member=member,
        retry=0,
        ids=(100 * (member + 1) + np.arange(length)).astype(np.int32),
        mask=mask,
        logprobs=np.where(mask, -0.5 - member, np.nan).astype(np.float32),
        versions=np.where(mask, 5 + member, -1).astype(np.int32),
        turns=(),
        messages=(),
        status=status,
        reward=1.0,
    )


def group(*episodes: Episode, advantages: list[float], live: list[bool] | None = None) -> Group:
    """Each sampled token of a member has its advantage."""
    spread = tuple(np.where(e.mask, a, 0.0).astype(np.float32) for e, a in zip(episodes, advantages, strict=True))
    return Group(3, episodes, spread, live=tuple(live or [not e.status.failed for e in episodes]))


def packed(*episodes: Episode, advantages: list[float], max_length: int = 64, needs: Needs | None = None, **of: Any) -> Batch:
    return pack_group(group(*episodes, advantages=advantages, **of), needs or Needs(), max_length)


def test_a_member_becomes_a_segment_with_all_that_is_known_of_its_tokens():
    one = episode(6, 2)
    (segment,) = packed(one, advantages=[1.5]).segments
    assert segment.ids.tolist() == one.ids.tolist()
    assert segment.mask.tolist() == [False, False, True, True, True, True]
    assert segment.advantages.tolist() == [0, 0, 1.5, 1.5, 1.5, 1.5]
    assert segment.logprobs[segment.mask].tolist() == [-0.5] * 4
    assert segment.versions.tolist() == [-1, -1, 5, 5, 5, 5]
    assert (segment.reference, segment.values, segment.returns) == (None, None, None)
    assert segment.name == "episode 3.0"


def test_tokens_behind_the_last_target_are_left_out():
    """S39: what is before it is kept whole, however long the prompt."""
    (segment,) = packed(episode(12, 7, tail=4), advantages=[1.0], max_length=8).segments
    assert segment.ids.tolist() == list(range(100, 108))
    assert len(segment.versions) == len(segment.logprobs) == len(segment.advantages) == 8


def test_members_without_a_gradient_have_no_segment_but_stay_in_divisor_and_metrics():
    """S27: a failed member adds no token, to the divisor neither; one whose advantage is 0 counts there."""
    members = [episode(4, 2, 0), episode(5, 2, 1), episode(6, 2, 2, Status.TOOL_ERROR), episode(3, 1, 3)]
    batch = packed(*members, advantages=[1.5, 0.0, 9.0, -0.5])
    assert [s.ids[0] for s in batch.segments] == [100, 400]
    assert batch.num_targets == 4
    assert batch.divisor == 2 + 3 + 2
    assert [row.num_sampled for row in batch.episodes] == [2, 3, 4, 2]
    assert [row.status for row in batch.episodes] == [e.status for e in members]
    assert [row.live for row in batch.episodes] == [True, True, False, True]


def test_a_loss_that_is_not_silent_without_advantages_gets_all_live_members():
    members = [episode(4, 2, 0), episode(5, 2, 1), episode(6, 2, 2)]
    batch = packed(*members, advantages=[0.0, 0.0, 0.0], live=[True, True, False], needs=Needs(silent=True))
    assert [s.ids[0] for s in batch.segments] == [100, 200]


def test_only_rows_that_are_trained_become_segments():
    """Each from position 0 of its own, with the tokens of its row only."""
    whole = episode(10, 1)
    rows = (Row(0, 4, "asker"), Row(4, 7, "critic", trained=False), Row(7, 10, "asker", forked=True))
    mask = np.array([0, 1, 1, 1, 0, 1, 1, 0, 1, 1], bool)
    of_roles = msgspec.structs.replace(whole, rows=rows, mask=mask)
    batch = packed(of_roles, advantages=[1.0])
    assert [s.ids.tolist() for s in batch.segments] == [[100, 101, 102, 103], [107, 108, 109]]
    assert [s.name for s in batch.segments] == ["episode 3.0 of asker"] * 2
    assert batch.divisor == 5


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        (Needs(), (4.0, 1.0)),
        (Needs(aggregation="sequence"), (1.0, 0.25)),
        (Needs(aggregation="constant", constant_length=32), (32.0, 1.0)),
    ],
)
def test_an_aggregation_is_a_weight_and_a_share_of_the_divisor(needs, expected):
    one = episode(6, 2)
    assert shares(one, needs) == expected
    batch = packed(one, advantages=[1.0], needs=needs)
    assert (batch.divisor, batch.segments[0].weight) == expected


def test_an_episode_that_sampled_nothing_has_no_share():
    nothing = episode(4, 4)
    assert shares(nothing, Needs(aggregation="sequence")) == (0.0, 0.0)
    batch = packed(nothing, advantages=[1.0], needs=Needs(aggregation="sequence"))
    assert (batch.units, batch.divisor) == ((), 0.0)


def test_a_constant_length_that_is_missing_is_named():
    with pytest.raises(
        ValueError, match=r"expected a constant_length with aggregation='constant', got None.*set it in the loss"
    ):
        shares(episode(4, 2), Needs(aggregation="constant"))


def test_what_a_loss_reads_must_have_been_made():
    needs = Needs(reference=True, critic=True)
    with pytest.raises(ValueError, match=r"episode 3\.0: expected reference and values and returns .*stage that gives them"):
        packed(episode(4, 2), advantages=[1.0], needs=needs)
    values = np.arange(4, dtype=np.float32)
    ready = msgspec.structs.replace(episode(4, 2), reference=-values, values=values)
    given = msgspec.structs.replace(group(ready, advantages=[1.0]), returns=(values + 1,))
    (segment,) = pack_group(given, needs, 8).segments
    assert (segment.reference[3], segment.values[3], segment.returns[3]) == (-3.0, 3.0, 4.0)


def test_a_loss_that_reads_no_behaviour_gets_none():
    demonstration = msgspec.structs.replace(episode(4, 2), logprobs=np.full(4, np.nan, np.float32), reward=None)
    (segment,) = packed(demonstration, advantages=[0.0], needs=Needs(behaviour=False, silent=True)).segments
    assert (segment.logprobs, segment.versions) == (None, None)


@pytest.mark.parametrize("broken", [np.nan, -np.inf])
def test_a_target_without_a_usable_log_probability_is_refused(broken):
    """S88, S89: it is named as such, and is not silently a 0."""
    one = episode(6, 2)
    one.logprobs[3] = broken
    with pytest.raises(ValueError, match=rf"expected a finite behaviour log-probability .*got {broken} at position 3"):
        packed(one, advantages=[1.0])


def test_a_target_without_a_context_is_refused():
    with pytest.raises(ValueError, match="expected a context before the first target, got a target at position 0"):
        packed(episode(4, 0), advantages=[1.0])


def test_an_episode_longer_than_a_row_names_the_setting():
    with pytest.raises(
        ValueError, match=r"episode 3\.0: expected at most row_length=8 tokens, got 9 .*raise row_length in the config"
    ):
        packed(episode(9, 2), advantages=[1.0], max_length=8)


def test_units_of_two_stay_together_and_count_as_one_length():
    pair = (Segment(np.arange(5, dtype=np.int32), np.arange(5) > 1), Segment(np.arange(4, dtype=np.int32), np.arange(4) > 1))
    batch = make_batch(7, [pair], divisor=1.0, max_length=9)
    assert [len(unit) for unit in batch.units] == [2]
    assert (batch.birth, batch.divisor, batch.num_targets) == (7, 1.0, 5)
    with pytest.raises(ValueError, match="at most row_length=8 tokens, got 9"):
        make_batch(7, [pair], max_length=8)


def test_units_without_a_target_are_left_out():
    batch = make_batch(0, [(Segment(np.arange(4, dtype=np.int32), np.zeros(4, bool)),)])
    assert (batch.units, batch.divisor) == ((), 0.0)


def test_a_group_without_advantages_is_refused():
    with pytest.raises(ValueError, match="put an Advantages stage in front of Pack"):
        pack_group(Group(3, (episode(4, 2),)), Needs(), 8)


def test_the_stage_packs_with_its_row_length():
    stage = Pack(PackConfig(row_length=8), Needs())
    batch = asyncio.run(stage(group(episode(6, 2), advantages=[1.0]), None))  # pyright: ignore[reportArgumentType]
    assert batch.num_targets == 4
    with pytest.raises(ValueError, match="row_length=8"):
        asyncio.run(stage(group(episode(9, 2), advantages=[1.0]), None))  # pyright: ignore[reportArgumentType]

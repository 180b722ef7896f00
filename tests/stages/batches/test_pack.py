import asyncio

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.batches.pack import Segment, first_fit, group_segments, pack
from stages.batches.stage import Pack, PackConfig
from stages.records import Batch, Episode, Group, Status, Task


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
        versions=np.where(mask, 1, -1).astype(np.int32),
        turns=(),
        messages=(),
        status=status,
        reward=1.0,
    )


def segments_of(batch: Batch) -> list[tuple]:
    """Every segment of a batch, row by row, read back from the arrays."""
    found = []
    for row in range(len(batch.ids)):
        for number in range(1, batch.segments[row].max(initial=0) + 1):
            at = batch.segments[row] == number
            arrays = (batch.ids, batch.positions, batch.mask, batch.logprobs, batch.advantages)
            found.append(tuple(array[row][at].tolist() for array in arrays))
    return found


def test_targets_keep_the_version_that_sampled_them_and_nothing_else_has_one():
    """Through the stage, of two members in one row; demonstrations have no versions."""
    episodes = (episode(4, 2, 0), episode(5, 3, 1, tail=1))
    episodes = tuple(msgspec.structs.replace(e, versions=np.where(e.mask, 5 + e.member, -1).astype(np.int32)) for e in episodes)
    group = Group(3, episodes, np.array([1.0, -1.0], np.float32))
    batch = asyncio.run(Pack(PackConfig(row_length=10))(group, None))  # pyright: ignore[reportArgumentType]
    assert batch.versions.dtype == np.int32
    assert batch.versions.tolist() == [[-1, -1, 5, 5, -1, -1, -1, 6, -1, -1]]
    shown = asyncio.run(Pack(PackConfig(row_length=10, logprobs="ignored"))(group, None))  # pyright: ignore[reportArgumentType]
    assert set(shown.versions.ravel().tolist()) == {-1}


def test_first_fit_takes_the_first_row_with_room():
    assert first_fit([5, 4, 3, 4, 1], row_length=8) == [0, 1, 0, 1, 2]
    assert first_fit([], row_length=8) == []
    with pytest.raises(ValueError, match="at most row_length=8, got 9 at index 1"):
        first_fit([1, 9], row_length=8)


lengths = st.lists(st.tuples(st.integers(2, 9), st.integers(1, 8)), max_size=10)


@given(lengths, st.integers(9, 20))
def test_packing_keeps_each_token_of_each_segment_once(shapes, row_length):
    episodes = [episode(length, min(start, length - 1), member) for member, (length, start) in enumerate(shapes)]
    segments = [Segment(e.ids, e.mask, e.logprobs, 0.5 + e.member) for e in episodes]
    batch = pack(3, segments, row_length)
    expected = [
        (
            e.ids.tolist(),
            list(range(len(e.ids))),
            e.mask.tolist(),
            np.where(e.mask, e.logprobs, 0).tolist(),
            np.where(e.mask, 0.5 + e.member, 0).tolist(),
        )
        for e in episodes
    ]
    assert sorted(segments_of(batch)) == sorted(expected)
    padding = batch.segments == 0
    for array in (batch.ids, batch.positions, batch.mask, batch.logprobs, batch.advantages):
        assert array.shape == batch.segments.shape
        assert not array[padding].any()
    assert batch.num_targets == sum(int(e.mask.sum()) for e in episodes)
    assert [array.dtype for array in (batch.ids, batch.mask, batch.logprobs)] == [np.int32, np.bool_, np.float32]


def test_segments_lie_in_a_row_in_member_order():
    batch = pack(
        3, [Segment(e.ids, e.mask, e.logprobs, 1.0) for e in (episode(3, 1, 0), episode(4, 2, 1), episode(2, 1, 2))], 7
    )
    assert batch.ids.tolist() == [[100, 101, 102, 200, 201, 202, 203], [300, 301, 0, 0, 0, 0, 0]]
    assert batch.segments.tolist() == [[1, 1, 1, 2, 2, 2, 2], [1, 1, 0, 0, 0, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 0, 1, 2, 3], [0, 1, 0, 0, 0, 0, 0]]
    assert batch.birth == 3


def test_tokens_behind_the_last_target_need_no_room():
    cut = episode(12, 2, tail=4)
    batch = pack(0, [Segment(cut.ids, cut.mask, cut.logprobs, 1.0)], row_length=8)
    assert batch.ids.tolist() == [list(range(100, 108))]


def test_nothing_to_train_gives_no_rows():
    batch = pack(0, [Segment(np.arange(4, dtype=np.int32), np.zeros(4, bool))], row_length=8)
    assert batch.ids.shape == batch.mask.shape == (0, 8)


def test_an_episode_longer_than_a_row_names_the_setting():
    with pytest.raises(
        ValueError, match=r"episode 3\.0: expected at most row_length=8 tokens, got 9 .*raise row_length in the config"
    ):
        pack_group(8, episode(9, 2), advantages=[1.0])


def test_a_target_without_context_or_log_probability_is_refused():
    """S88, S89: a sampled token without a log-probability is named as such, and is not silently a 0."""
    with pytest.raises(ValueError, match="expected a context before the first target"):
        pack_group(8, episode(4, 0), advantages=[1.0])
    broken = episode(6, 2)
    broken.logprobs[3] = np.nan
    with pytest.raises(ValueError, match=r"expected a finite behaviour log-probability .*got nan at position 3"):
        pack_group(8, broken, advantages=[1.0])


def pack_group(row_length: int, *episodes: Episode, advantages: list[float], **settings) -> Batch:
    stage = Pack(PackConfig(row_length=row_length, **settings))
    return asyncio.run(stage(Group(3, episodes, np.array(advantages, np.float32)), context=None))


def test_members_without_advantage_have_no_row_but_stay_in_the_metrics():
    """S27, S39: a failed member adds no trained token; tokens of the others are those the engine saw."""
    members = [episode(4, 2, 0), episode(5, 2, 1), episode(6, 2, 2, Status.TOOL_ERROR), episode(3, 1, 3)]
    batch = pack_group(16, *members, advantages=[1.5, 0.0, 0.0, -0.5])
    assert [ids for ids, *_ in segments_of(batch)] == [members[0].ids.tolist(), members[3].ids.tolist()]
    assert batch.advantages[batch.mask].tolist() == [1.5, 1.5, -0.5, -0.5]
    assert [row.num_sampled for row in batch.episodes] == [2, 3, 4, 2]
    assert [row.status for row in batch.episodes] == [e.status for e in members]


def test_a_failed_member_is_not_trained_even_with_an_advantage():
    group = Group(3, (episode(4, 2, status=Status.TIMED_OUT),), np.ones(1, np.float32))
    assert group_segments(group) == []


def test_demonstrations_are_packed_without_log_probabilities():
    demonstration = msgspec.structs.replace(episode(4, 2), logprobs=np.full(4, np.nan, np.float32), reward=None)
    batch = pack_group(8, demonstration, advantages=[1.0], logprobs="ignored")
    assert batch.mask[0].tolist() == [False, False, True, True, False, False, False, False]
    assert not batch.logprobs.any()
    with pytest.raises(ValueError, match="for demonstrations set logprobs='ignored'"):
        pack_group(8, demonstration, advantages=[1.0])


def test_a_group_without_advantages_is_refused():
    with pytest.raises(ValueError, match="put an Advantages stage in front of Pack"):
        asyncio.run(Pack(PackConfig(row_length=8))(Group(3, (episode(4, 2),)), context=None))

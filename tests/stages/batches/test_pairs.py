import msgspec
import numpy as np
import pytest

from stages.batches.pack import pack_group
from stages.batches.rows import RowFiller
from stages.losses.preference import PreferenceLoss
from stages.records import Episode, Group, Status, Task

NEEDS = PreferenceLoss().needs


def reply(member: int, length: int, birth: int) -> Episode:
    mask = np.arange(length) >= 2
    return Episode(
        task=Task("t", "?"),
        birth=birth,
        member=member,
        retry=0,
        ids=np.full(length, 10 * birth + member, np.int32),
        mask=mask,
        logprobs=np.full(length, np.nan, np.float32),
        versions=np.full(length, -1, np.int32),
        turns=(),
        messages=(),
        status=Status.FINISHED,
        reference=np.where(mask, -1.0 - member, np.nan).astype(np.float32),
    )


def pair(birth: int, lengths: tuple[int, int] = (4, 5)) -> Group:
    episodes = tuple(reply(member, length, birth) for member, length in enumerate(lengths))
    advantages = tuple(sign * each.mask.astype(np.float32) for sign, each in zip((1, -1), episodes, strict=True))
    return Group(birth, episodes, advantages, live=(True, True))


def test_the_two_replies_of_a_pair_share_a_row_the_chosen_one_with_an_odd_number():
    filler = RowFiller([(2, 16)], NEEDS.arrays)
    filled = [rows for birth in (1, 2, 3) for rows in filler.add(pack_group(pair(birth), NEEDS, 16).units)] + filler.flush()
    rows = [(rows, row) for rows in filled for row in range(2) if rows.mask[row].any()]
    assert len(rows) == 3  # A row has room for one pair and a half.
    for birth, (block, row) in enumerate(rows, start=1):
        numbers = block.segments[row][block.mask[row]].tolist()
        assert numbers == [1, 1, 2, 2, 2]
        assert block.ids[row][block.mask[row]].tolist() == [10 * birth] * 2 + [10 * birth + 1] * 3
        assert block.advantages[row][block.mask[row]].tolist() == [1, 1, -1, -1, -1]
        assert block.reference[row][block.mask[row]].tolist() == [-1, -1, -2, -2, -2]


def test_a_pair_counts_once_whatever_its_lengths():
    for lengths in ((3, 3), (4, 12)):
        batch = pack_group(pair(0, lengths), NEEDS, 16)
        assert batch.divisor == 1.0
        assert [[segment.weight for segment in unit] for unit in batch.units] == [[1.0, 1.0]]


def test_a_pair_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match=r"episode 0\.0: expected at most row_length=16 tokens, got 17"):
        pack_group(pair(0, (8, 9)), NEEDS, 16)


def test_a_group_that_is_no_pair_is_refused():
    group = pair(0)
    turned = msgspec.structs.replace(group, advantages=group.advantages[::-1])
    turned = msgspec.structs.replace(turned, episodes=group.episodes[::-1])
    lost = msgspec.structs.replace(group, live=(True, False))
    for wrong, signs in ((turned, r"2 rows with advantages of signs \[\[-1\.0\], \[1\.0\]\]"), (lost, "1 rows")):
        with pytest.raises(ValueError, match=rf"group 0: expected a pair, .*got {signs}"):
            pack_group(wrong, NEEDS, 16)


def test_a_pair_without_reference_log_probabilities_is_refused():
    group = pair(0)
    bare = tuple(msgspec.structs.replace(episode, reference=None) for episode in group.episodes)
    with pytest.raises(ValueError, match="expected reference for a loss that reads them, got None"):
        pack_group(msgspec.structs.replace(group, episodes=bare), NEEDS, 16)

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
    """Three pairs, of which a row has room for two."""
    filler = RowFiller([(1, 20)], NEEDS.arrays)
    filled = [rows for birth in (1, 2, 3) for rows in filler.add(pack_group(pair(birth), NEEDS, 20).units)] + filler.flush()
    found = {}
    for rows in filled:
        for number in range(1, int(rows.segments.max()) + 1):
            at = (rows.segments == number) & rows.mask
            birth, member = divmod(int(rows.ids[at][0]), 10)
            found[birth, member] = number
            assert rows.ids[at].tolist() == [10 * birth + member] * (2 + member)
            assert set(rows.advantages[at].tolist()) == {-1.0 if member else 1.0}
            assert set(rows.reference[at].tolist()) == {-1.0 - member}
    assert sorted(found) == [(birth, member) for birth in (1, 2, 3) for member in (0, 1)]
    assert sorted(found.values()) == [1, 1, 2, 2, 3, 4]
    for birth in (1, 2, 3):
        assert found[birth, 0] % 2 == 1
        assert found[birth, 1] == found[birth, 0] + 1


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
    turned = msgspec.structs.replace(group, episodes=group.episodes[::-1], advantages=group.advantages[::-1])
    one = Group(0, group.episodes[:1], group.advantages[:1], live=(True,))
    for wrong, signs in ((turned, r"2 rows with advantages of signs \[\[-1\.0\], \[1\.0\]\]"), (one, "1 rows")):
        with pytest.raises(ValueError, match=rf"group 0: expected a pair, .*got {signs}"):
            pack_group(wrong, NEEDS, 16)


def test_a_pair_of_which_one_reply_failed_is_neither_trained_nor_counted():
    """As when the reference gives it a number that is not finite."""
    group = pair(0)
    failed = msgspec.structs.replace(group.episodes[1], status=Status.MODEL_ERROR, reference=None)
    for lost in (
        msgspec.structs.replace(group, live=(True, False)),
        msgspec.structs.replace(group, episodes=(group.episodes[0], failed)),
    ):
        batch = pack_group(lost, NEEDS, 16)
        assert (batch.units, batch.divisor, len(batch.episodes)) == ((), 0.0, 2)


def test_a_pair_without_reference_log_probabilities_is_refused():
    group = pair(0)
    bare = tuple(msgspec.structs.replace(episode, reference=None) for episode in group.episodes)
    with pytest.raises(ValueError, match="expected reference for a loss that reads them, got None"):
        pack_group(msgspec.structs.replace(group, episodes=bare), NEEDS, 16)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.records import Task
from stages.tasks.source import Tasks, epoch_order, stretched_order

SIX = [Task(str(i), f"{i}?") for i in range(6)]


def draw(source, count):
    return [source.draw().id for _ in range(count)]


def test_every_epoch_holds_every_task_once_in_an_order_of_its_own():
    """S3: a pass that is over is followed by the next."""
    ids = draw(Tasks(SIX, seed=1), 18)
    epochs = [ids[:6], ids[6:12], ids[12:]]
    assert [sorted(epoch) for epoch in epochs] == [list("012345")] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_last_epoch_ends_the_source():
    """S3."""
    source = Tasks(SIX, seed=1, epochs=2)
    assert len(draw(source, 12)) == 12
    with pytest.raises(StopIteration):
        source.draw()
    assert source.state() == (2, 0)
    with pytest.raises(StopIteration):
        source.draw()


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 5))
def test_a_restored_source_goes_on_where_it_was(before, after, seed):
    """S92, S95: nothing is fetched ahead, so the cursor is all there is."""
    whole = Tasks(SIX, seed)
    draw(whole, before)
    resumed = Tasks(SIX, seed)
    draw(resumed, 3)
    resumed.restore(whole.state())
    assert draw(resumed, after) == draw(whole, after)


def test_a_place_the_set_does_not_have_is_refused():
    """S93."""
    with pytest.raises(ValueError, match="expected a place among 6 tasks; got epoch 0, index 100"):
        Tasks(SIX, seed=0).restore((0, 100))


def test_another_set_has_another_fingerprint():
    """S93."""
    same, changed = list(SIX), [*SIX[:5], Task("5", "5?", "changed")]
    assert Tasks(SIX, 0).fingerprint == Tasks(same, 1).fingerprint != Tasks(changed, 0).fingerprint


def test_only_the_seed_changes_the_order():
    """S107."""
    assert draw(Tasks(SIX, 1), 12) == draw(Tasks(SIX, 1), 12) != draw(Tasks(SIX, 2), 12)
    assert draw(Tasks(SIX, 1, shuffle=False), 12) == list("012345") * 2


def test_an_order_never_changes_from_one_release_to_the_next():
    """Pinned: a resumed run counts on it."""
    assert epoch_order(8, seed=3, epoch=2).tolist() == [4, 0, 5, 3, 7, 6, 1, 2]


def test_too_few_tasks_are_refused_at_once():
    """S108."""
    with pytest.raises(ValueError, match="expected at least 1 tasks; got 0"):
        Tasks([], seed=0)
    with pytest.raises(ValueError, match="expected at least 4 tasks; got 3"):
        Tasks(SIX[:3], seed=0, min_tasks=4)
    with pytest.raises(ValueError, match="at least 1 epoch"):
        Tasks(SIX, seed=0, epochs=0)


def test_stretches_are_passed_through_one_after_another_each_in_an_order_of_its_own():
    """Of 3, 1 and 2 tasks: an epoch reads each stretch once, and in the end every task was drawn once."""
    stretch = {"0": "a", "1": "a", "2": "a", "3": "b", "4": "c", "5": "c"}
    source = Tasks(SIX, seed=0, stretches=(3, 1, 2))
    orders = set()
    for _ in range(12):
        ids = draw(source, 6)
        assert sorted(ids) == list("012345")
        passed = [stretch[task] for task in ids]
        assert sum(now != before for now, before in zip(passed[1:], passed, strict=False)) == 2
        orders.add(tuple(ids))
    assert len(orders) > 8
    assert stretched_order((3, 1, 2), seed=3, epoch=2).tolist() == PINNED
    with pytest.raises(ValueError, match="stretches that add up to 6 tasks; got 5"):
        Tasks(SIX, seed=0, stretches=(3, 2))


PINNED = [1, 2, 0, 3, 5, 4]

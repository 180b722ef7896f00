import math
from datetime import date

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow.saving import NotResumable
from flow.saving._declared import check_resumable
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
    assert (source.state().epoch, source.state().index) == (2, 0)
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


CHANGED = [*SIX[:5], Task("5", "5?", "changed")]
OTHERS = {
    "shorter": (lambda: Tasks(SIX[:4], 1), "got the set of 4 with"),
    "longer": (lambda: Tasks([*SIX, Task("6", "6?")], 1), "got the set of 7 with"),
    "one row changed": (lambda: Tasks(CHANGED, 1), "got the set of 6 with"),
    "another seed": (lambda: Tasks(SIX, 2), "by seed 2, in Tasks.restore"),
    "as it is": (lambda: Tasks(SIX, 1, shuffle=False), "as it is, in Tasks.restore"),
    "in parts": (lambda: Tasks(SIX, 1, stretches=(2, 4)), "by seed 1, 2 parts one after another, in"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_set_or_another_order_of_it_is_refused_and_nothing_passed_over(kind):
    """S93: what a place means there is something else. Both sizes are told."""
    make, got = OTHERS[kind]
    whole = Tasks(SIX, 1)
    draw(whole, 3)
    other = make()
    with pytest.raises(ValueError, match=r"expected the set of 6 with the fingerprint [0-9a-f]{16} by seed 1") as caught:
        other.restore(whole.state())
    assert got in str(caught.value)
    assert other.draw().id == make().draw().id


def test_a_set_is_told_by_all_that_is_in_its_tasks():
    """Another set read the same way is the same; whatever differs in a field makes it another."""
    made = [
        Tasks([msgspec.structs.replace(SIX[0], **change)], 0).identity
        for change in ({}, {}, {"extra": {"a": 1}}, {"difficulty": "hard"})
    ]
    assert made[0] == made[1]
    assert len({identity.fingerprint for identity in made}) == 3


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"pair": (1, 2)}, r"extra\['pair'\] is a tuple and would be a list"),
        ({"deep": [{"when": date(2024, 1, 2)}]}, r"extra\['deep'\]\[0\]\['when'\] is a date and would be a str"),
        ({"thing": object()}, "cannot be saved: expected an array of numbers, got object"),
    ],
)
def test_a_task_that_would_come_back_as_another_is_refused_before_anything_runs(extra, told):
    """B7: a resumed run would hand its environment something else than the run that was killed."""
    source = Tasks([*SIX, Task("odd", "?", extra=extra)], 0)
    with pytest.raises(NotResumable, match=f"rl.prompts: .*'odd', which .*{told}"):
        check_resumable(source, "rl.prompts")
    check_resumable(Tasks([Task("even", "?", extra={"a": [1, 2.5, None, math.nan, "x", {"b": np.zeros(2)}]})], 0), "rl.prompts")


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

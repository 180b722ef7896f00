"""Open groups: every member reports, a group closes for one reason, and what comes late changes nothing."""

from hypothesis import given
from hypothesis import strategies as st

from flow import Failure, Retry, Shrink
from flow._core.groups import Groups
from flow._core.item import Item

BROKEN = Failure("Broken", "it broke")


def origin(number: int = 7) -> Item:
    return Item(f"task {number}", (number,), number)


def done(member: Item, version: int | None = None) -> Item:
    return member.derive(f"result {member.member}", version)


def test_a_full_group_leaves_with_its_members_in_order():
    groups = Groups("drop")
    members = groups.begin(origin(), 3)
    assert [(m.value, m.path, m.birth, m.member) for m in members] == [
        ("task 7", (7, 0), 0, 0), ("task 7", (7, 1), 0, 1), ("task 7", (7, 2), 0, 2),
    ]  # fmt: skip
    assert groups.report(done(members[2], 5), None) is None
    assert groups.report(done(members[0], 3), None) is None
    closed = groups.report(done(members[1], 4), None)
    assert closed is not None
    assert closed.item is not None
    assert closed.item.value.members == ("result 0", "result 1", "result 2")
    assert (closed.item.value.closed, closed.item.version, closed.item.path) == ("full", 3, (7,))
    assert not groups.open


def test_a_failed_member_drops_its_group_and_the_others_come_late():
    """G5, S8: siblings still on their way report to a closed group; they are counted and open nothing anew."""
    groups = Groups("drop")
    members = groups.begin(origin(), 3)
    groups.report(done(members[0]), None)
    closed = groups.report(members[1], BROKEN)
    assert closed is not None
    assert (closed.item, closed.reason, closed.discarded) == (None, "member failed: Broken", 1)
    assert groups.report(done(members[2]), None) is None
    assert groups.late == 1
    assert not groups.open


def test_a_member_is_retried_with_a_higher_number_and_then_the_group_is_dropped():
    """S15: retries have a cap, per member."""
    groups, woken = Groups(Retry(2, then="drop")), []
    groups.on_retry = lambda: woken.append(len(groups.retries))
    (member,) = groups.begin(origin(), 1)
    for retry in (1, 2):
        assert groups.report(member, BROKEN) is None
        member = groups.retries.popleft()
        assert (member.retry, member.value, member.path) == (retry, "task 7", (7, 0))
    closed = groups.report(member, BROKEN)
    assert closed is not None
    assert closed.item is None
    assert woken == [1, 1]


def test_a_member_that_is_issued_again_leaves_out_the_retries_of_its_copies():
    groups = Groups(Retry(1, then="drop"), aside=3)
    (member,) = groups.begin(origin(), 1)
    groups.report(member, BROKEN)
    assert groups.retries.popleft().retry == 4


def test_retries_of_a_dropped_group_are_not_issued():
    """S17: nothing of a closed group is started any more."""
    groups = Groups(Retry(1, then="drop"))
    members = groups.begin(origin(), 2)
    other = groups.begin(origin(8), 1)
    groups.report(members[0], BROKEN)
    groups.report(other[0], BROKEN)
    groups.give_up(0, "stale")
    assert [item.birth for item in groups.retries] == [1]
    assert groups.give_up(0, "stale") is None


def test_a_group_shrinks_to_those_that_succeeded():
    """S27: a failed member is a reason, never a value."""
    groups = Groups(Shrink(min_members=2))
    members = groups.begin(origin(), 3)
    groups.report(done(members[0]), None)
    groups.report(members[1].derive("dummy", None, failed="TimedOut"), None)
    closed = groups.report(done(members[2]), None)
    assert closed is not None
    assert closed.item is not None
    assert closed.item.value.members == ("result 0", "result 2")
    assert closed.item.value.failures == ("TimedOut",)
    assert closed.item.value.closed == "shrunk"


def test_a_group_with_too_few_members_is_dropped():
    groups = Groups(Shrink(min_members=2))
    members = groups.begin(origin(), 2)
    groups.report(members[0], BROKEN)
    closed = groups.report(done(members[1]), None)
    assert closed is not None
    assert (closed.item, closed.reason, closed.discarded) == (None, "too few members", 1)


def test_a_group_is_as_old_as_its_oldest_member():
    groups = Groups("drop")
    groups.begin(origin(), 2)
    assert groups.open[0].version is None
    groups.dispatched(0, 0, 4)
    groups.dispatched(0, 1, 6)
    assert groups.open[0].version == 4
    groups.dispatched(0, 0, 7)
    assert groups.open[0].version == 6
    groups.dispatched(99, 0, 1)  # a closed group: no concern of anybody


@given(
    size=st.integers(1, 5),
    missing=st.sampled_from(["drop", Shrink(1), Shrink(2), Retry(1, then="drop"), Retry(2, then="shrink")]),
    fates=st.lists(st.sampled_from(["ok", "raised", "marked"]), min_size=60, max_size=60),
    picks=st.lists(st.integers(0, 99), min_size=60, max_size=60),
)
def test_every_group_closes_exactly_once_whatever_its_members_do(size, missing, fates, picks):
    """G3: every member reports, so a group with any number of failures still closes."""
    groups = Groups(missing)
    on_the_way = [member for _ in range(3) for member in groups.begin(origin(), size)]
    closed = []
    for fate, pick in zip(fates, picks, strict=True):
        on_the_way += groups.retries
        groups.retries.clear()
        if not on_the_way:
            break
        member = on_the_way.pop(pick % len(on_the_way))
        result = done(member) if fate != "marked" else member.derive("dummy", None, failed="marked")
        closed.append(groups.report(result, BROKEN if fate == "raised" else None))
    assert not on_the_way
    assert not groups.open
    assert sorted(c.birth for c in closed if c is not None) == [0, 1, 2]

"""Which files of a journal are kept, and for whom."""

from pathlib import Path

from flow.saving import Journal
from flow.saving._records import Made


def made(number: int) -> Made:
    """What came of the first attempt at an item."""
    return Made(
        graph="graph", node="play", path=(number,), retry=0, birth=number, member=None, attempt=0, before=None, seen=None,
        version=None, trails=(None, None), outcome="plain", reason="", detail="", values=(b"1",),
    )  # fmt: skip


def test_what_an_older_commit_may_need_stays_although_a_newer_one_does_not_need_it(tmp_path: Path):
    """The moment of the next commit may be taken while one is being written, and what it waits for may be delivered by then."""
    one = made(1)
    with Journal(tmp_path) as journal:
        journal.keep(one)
        journal.cut(1)
        journal.cut(2)  # commit 2 is being written
        journal.delivered(one.key)
        journal.cut(3)  # which does not need it
        journal.forget(2)  # commit 2 is there
    with Journal(tmp_path, after=2) as journal:
        assert journal.find(one.key) == one


def test_files_that_no_commit_needs_are_removed(tmp_path: Path):
    with Journal(tmp_path) as journal:
        for number in range(1, 6):
            journal.keep(made(number))
            journal.delivered(made(number).key)
            journal.cut(number)
            journal.forget(max(1, number - 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000004.log", "000005.log"]


def test_what_was_finished_outlives_many_kills_before_a_commit_comes_to_be(tmp_path: Path):
    """Only the moments of one process count for what nobody wants any more."""
    one = made(1)
    with Journal(tmp_path) as journal:
        journal.keep(one)
    for number in range(20):
        with Journal(tmp_path) as journal:
            assert journal.find(one.key) == one
            journal.cut(1 + number)

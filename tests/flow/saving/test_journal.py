"""A journal gives back what was written, up to what is torn, and a disk that refuses costs nothing but what it refused."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.saving import Begun, Cut, Forgiven, Journal, Made, Opened, Step, read_journal
from flow.saving._records import MAGIC, frame, read_file

PATHS = st.lists(st.integers(0, 2**40), min_size=1, max_size=4).map(tuple)
NAMES = st.text(max_size=8)
VERSIONS = st.none() | st.integers(0, 2**31)
TRAIL = st.integers(0, 2**64 - 1)
TRAILS = st.none() | TRAIL
TAKEN = st.tuples(PATHS, st.integers(0, 99), VERSIONS)
OUTCOMES = st.sampled_from(["plain", "failed", "many", "filtered", "dropped", "retried"])
RECORDS = st.one_of(
    st.builds(Opened, st.integers(0, 999)),
    st.builds(Begun, NAMES, NAMES, PATHS, st.integers(0, 9), st.integers(0, 9)),
    st.builds(
        Made, NAMES, NAMES, PATHS, st.integers(0, 9), st.integers(0, 99), VERSIONS, st.integers(0, 9), VERSIONS, VERSIONS,
        VERSIONS, st.tuples(TRAILS, TRAILS), OUTCOMES, NAMES, NAMES, st.lists(st.binary(max_size=50), max_size=3).map(tuple),
    ),
    st.builds(Step, NAMES, NAMES, st.integers(1, 99), st.lists(TAKEN, max_size=3).map(tuple)),
    st.builds(Cut, st.integers(1, 99), st.integers(0, 9), st.dictionaries(NAMES, st.dictionaries(st.integers(0, 9), TRAIL))),
    st.builds(Forgiven, NAMES),
)  # fmt: skip


def made(index: int, outcome: str = "plain", value: bytes = b"value") -> Made:
    return Made("graph", "play", (index,), 0, index, None, 0, None, None, None, (None, None), outcome, "", "", (value,))


def begun(index: int, attempt: int = 0) -> Begun:
    return Begun("graph", "play", (index,), 0, attempt)


@pytest.mark.slow
@given(st.lists(RECORDS, max_size=6))
@settings(max_examples=40, deadline=None)
def test_what_is_appended_is_read_in_order(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("journal")
    with Journal(folder) as journal:
        for record in records:
            journal.append(record)
    assert list(read_journal(folder)) == [Opened(0), *records]


@pytest.mark.slow
def test_a_file_that_is_torn_at_any_byte_gives_the_records_before_and_goes_on_behind_them(tmp_path):
    """S96: what is half written is never believed, and nothing is written behind it, where nobody would read it."""
    records = [begun(0), made(0), made(1, value=b"")]
    whole = MAGIC + b"".join(map(frame, records))
    ends = [len(MAGIC)]
    for record in records:
        ends.append(ends[-1] + len(frame(record)))
    for cut in range(len(whole)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "000000.log").write_bytes(whole[:cut])
        good = records[: max(sum(end <= cut for end in ends) - 1, 0)]
        assert list(read_journal(folder)) == good
        with Journal(folder) as journal:
            assert bool(journal.told) is (cut not in ends and cut > len(MAGIC))
            journal.append(begun(7))
        assert list(read_journal(folder)) == [*good, Opened(0), begun(7)]


@pytest.mark.parametrize("at", range(len(MAGIC) + len(frame(begun(0))), len(MAGIC) + 2 * len(frame(begun(0)))))
def test_a_byte_that_is_wrong_in_the_middle_hides_what_follows_in_its_file_only(tmp_path, at):
    content = bytearray(MAGIC + frame(begun(0)) + frame(begun(1)) + frame(begun(2)))
    content[at] ^= 0x55
    (tmp_path / "000000.log").write_bytes(content)
    (tmp_path / "000001.log").write_bytes(MAGIC + frame(begun(3)))
    assert list(read_journal(tmp_path)) == [begun(0), begun(3)]
    told: list[str] = []
    list(read_file(tmp_path / "000000.log", told))
    assert "what follows is not used" in told[0]
    with Journal(tmp_path) as journal:
        assert [journal.next_attempt(begun(index).key) for index in range(4)] == [1, 0, 0, 1]


def test_a_file_of_zeros_and_one_of_another_format_are_told_and_give_nothing(tmp_path):
    (tmp_path / "000000.log").write_bytes(MAGIC + bytes(64))  # as a file system leaves it after a power cut
    (tmp_path / "000001.log").write_bytes(b"journal9" + frame(begun(0)))
    assert list(read_journal(tmp_path)) == []
    with Journal(tmp_path) as journal:
        assert [line.split(": ")[0].rsplit("/", 1)[1] for line in journal.told] == ["000000.log", "000001.log"]
        assert "expected a journal of format journal1, got another" in journal.told[1]


def test_what_came_of_an_attempt_is_found_until_it_is_delivered(tmp_path):
    """P3."""
    with Journal(tmp_path) as journal:
        journal.keep(made(0))
        journal.keep(made(1))
        journal.delivered(made(1).key)
        assert (journal.find(made(0).key), journal.find(made(1).key)) == (made(0), None)
    with Journal(tmp_path) as journal:
        assert journal.find(made(0).key) == made(0)
        assert journal.find(made(1).key) == made(1)  # whoever goes on tells what it has had already
        assert journal.find(made(2).key) is None


def test_the_later_of_two_results_counts(tmp_path):
    with Journal(tmp_path) as journal:
        journal.keep(made(0, value=b"first"))
        journal.cut(1)
        journal.keep(made(0, value=b"second"))
    with Journal(tmp_path, after=1) as journal:
        assert journal.find(made(0).key) == made(0, value=b"second")


def test_attempts_go_on_behind_the_highest_number_that_was_given(tmp_path):
    with Journal(tmp_path) as journal:
        for attempt in (0, 1, 2):
            journal.append(begun(0, attempt))
    with Journal(tmp_path) as journal:
        assert journal.next_attempt(begun(0).key) == 3


def test_failures_before_the_graph_ended_in_an_error_are_forgiven_and_results_are_not(tmp_path):
    with Journal(tmp_path) as journal:
        journal.keep(made(0, "dropped"))
        journal.keep(made(1, "retried"))
        journal.keep(made(2))
        journal.append(Forgiven("another"))
    with Journal(tmp_path) as journal:
        assert journal.find(made(0).key) == made(0, "dropped")
        journal.append(Forgiven("graph"))
        journal.keep(made(3, "failed"))
    with Journal(tmp_path) as journal:
        found = [index for index in range(4) if journal.find(made(index).key) is not None]
    assert found == [2, 3]


def test_a_commit_begins_a_file_and_files_before_the_oldest_commit_are_removed(tmp_path):
    with Journal(tmp_path) as journal:
        for number in (1, 2, 5):
            journal.cut(number)
            journal.append(begun(number))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["000000.log", "000001.log", "000002.log", "000005.log"]
        journal.forget(2)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["000002.log", "000005.log"]
    with Journal(tmp_path, after=5) as journal:
        assert [journal.next_attempt(begun(number).key) for number in (1, 2, 5)] == [0, 0, 1]


def test_a_file_stays_as_long_as_a_result_in_it_waits_to_be_delivered_and_not_for_ever(tmp_path):
    with Journal(tmp_path) as journal:
        journal.keep(made(0))
        journal.keep(made(1))
        for number in range(1, 5):
            journal.cut(number)
            journal.forget(number)
        assert journal.find(made(0).key) == made(0)
    with Journal(tmp_path, after=4) as journal:
        assert journal.find(made(0).key) == made(0)
        for number in range(5, 20):
            journal.cut(number)
            journal.forget(number)
        assert journal.find(made(0).key) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000019.log"]


def test_where_all_is_recorded_nothing_is_removed(tmp_path):
    with Journal(tmp_path, record=True) as journal:
        for number in range(1, 20):
            journal.cut(number)
            journal.forget(number)
    assert len(list(tmp_path.iterdir())) == 20


def test_what_versions_were_made_of_is_known_to_whoever_goes_on_from_that_commit(tmp_path):
    with Journal(tmp_path) as journal:
        journal.trails["graph.cell"] = {0: 10}
        journal.cut(1)
        journal.trails["graph.cell"][1] = 11
        journal.cut(2)
    for after, trails in ((1, {"graph.cell": {0: 10}}), (2, {"graph.cell": {0: 10, 1: 11}}), (3, {}), (0, {})):
        with Journal(tmp_path, after=after) as journal:
            assert journal.trails == trails


def test_of_a_number_that_was_given_to_two_commits_the_later_counts(tmp_path):
    """The first of them never came to be: the process was killed before."""
    for trail in (1, 2):
        with Journal(tmp_path) as journal:
            journal.trails = {"graph.cell": {0: trail}}
            journal.cut(1)
    with Journal(tmp_path, after=1) as journal:
        assert journal.trails == {"graph.cell": {0: 2}}


def test_a_full_disk_is_told_once_and_the_journal_goes_on_with_the_next_commit(tmp_path, full_disk):
    """S99."""
    told: list[OSError] = []
    with Journal(tmp_path, on_failure=told.append) as journal:
        journal.keep(made(0))
        full_disk((tmp_path / "000000.log").stat().st_size + 30)
        for index in (1, 2, 3):
            journal.keep(made(index))
        assert (len(told), journal.failure) == (1, told[0])
        assert journal.find(made(1).key) is None
        full_disk(None)
        journal.keep(made(4))  # the file may have a hole: not before the next commit
        journal.cut(1)
        journal.keep(made(5))
        assert journal.failure is None
    assert list(read_journal(tmp_path)) == [Opened(0), made(0), Cut(1, 0), made(5)]


def test_a_folder_that_vanishes_is_made_again_at_the_next_commit(tmp_path):
    folder = tmp_path / "journal"
    with Journal(folder) as journal:
        (folder / "000000.log").unlink()
        folder.rmdir()
        journal.keep(made(0))
        assert journal.find(made(0).key) is None
        journal.cut(1)
        journal.keep(made(1))
        assert journal.find(made(1).key) == made(1)
    assert list(read_journal(folder)) == [Cut(1, 1), made(1)]


def test_a_place_that_cannot_be_written_is_told_and_nothing_is_noted(tmp_path):
    (tmp_path / "journal").write_text("a file")
    told: list[OSError] = []
    with Journal(tmp_path / "journal", on_failure=told.append) as journal:
        journal.keep(made(0))
        journal.cut(1)
    assert [type(error) for error in told] == [FileExistsError, FileExistsError]


CHILD = """
import os, signal, sys
from pathlib import Path
from flow.saving import Begun, Journal, _points

left = 20

def reached(point):
    global left
    left -= point == sys.argv[2]
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

_points.listeners.append(reached)
with Journal(Path(sys.argv[1])) as journal:
    for index in range(1000):
        journal.append(Begun("graph", "play", (index,), 0, 0))
        print(index, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["journal.append", "journal.appended"])
def test_what_was_appended_before_a_kill_is_there(tmp_path, point):
    """P3: ``write()`` alone survives the death of the process."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), point],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert (child.returncode, child.stderr) == (-signal.SIGKILL, "")
    reported = [int(line) for line in child.stdout.split()]
    kept = [record.path[0] for record in read_journal(tmp_path) if isinstance(record, Begun)]
    assert kept == [*reported, *([len(reported)] if point == "journal.appended" else [])]

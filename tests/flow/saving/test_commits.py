"""Commits on a real disk: whole or not there, found again, kept or removed, one writer at a time."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from flow.saving import CannotResume, Commit, Commits, complete, newest
from flow.saving._points import listeners


def saves(folder: Path, content: str = "large") -> Callable[[], None]:
    def write() -> None:
        folder.mkdir()
        (folder / "array").write_text(content)

    return write


def make(commits: Commits, about: dict | None = None, *, moment: bytes = b"all of it") -> Commit:
    """Make a commit with a moment, and a folder of what saved more."""
    draft = commits.begin()
    return commits.write(draft, about or {}, {"name": "rl"}, [moment[:3], moment[3:]], [saves(draft.folder / "trainer")])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


@contextmanager
def reaching(point: str, then: Callable[[], None]):
    def listener(reached: str) -> None:
        if reached == point:
            then()

    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)


def fail() -> None:
    raise OSError(28, "No space left on device")


def test_what_is_written_is_read_again(tmp_path):
    with Commits(tmp_path / "checkpoints") as commits:
        made = make(commits, {"phase": 2})
        assert commits.latest() == made
    found = newest(tmp_path / "checkpoints")
    assert found == made
    assert (found.number, found.manifest.about, found.manifest.graph) == (1, {"phase": 2}, {"name": "rl"})
    assert found.read_moment() == b"all of it"
    assert (found.saved("trainer") / "array").read_text() == "large"
    assert found.saved("other") is None


def test_a_commit_between_two_graphs_has_no_moment(tmp_path):
    with Commits(tmp_path) as commits:
        commit = commits.write(commits.begin(), {"phase": 1})
    with pytest.raises(CannotResume, match=r"000001: expected the moment of a graph, got a commit between two; start the next"):
        commit.read_moment()


@pytest.mark.parametrize("point", ["commit.begin", "commit.moment", "commit.saved", "commit.manifest"])
def test_one_that_is_cut_short_before_its_rename_is_not_there_and_is_swept(tmp_path, point):
    """P2, S96: a copy of the disk at that instant is what a killed process leaves."""
    with Commits(tmp_path / "run") as commits:
        first = make(commits)
        with reaching(point, lambda: shutil.copytree(tmp_path / "run", tmp_path / "killed")):
            make(commits)
    assert [commit.number for commit in complete(tmp_path / "killed")] == [1]
    assert names(tmp_path / "killed") == ["000001", "000002.part"]
    with Commits(tmp_path / "killed") as commits:
        assert names(tmp_path / "killed") == ["000001"]
        assert commits.latest().number == first.number
        assert make(commits).number == 3, "no number comes twice"


def test_one_that_the_disk_refuses_leaves_nothing_behind_and_the_next_is_made(tmp_path):
    """S98: the one before it stays the latest, and its number is not taken."""
    with Commits(tmp_path) as commits:
        first = make(commits)
        for point in ("commit.moment", "commit.saved", "commit.manifest"):
            with reaching(point, fail), pytest.raises(OSError, match="No space left"):
                make(commits)
            assert commits.latest() == first
            assert names(tmp_path) == ["000001"]
        assert make(commits).number > first.number
        assert commits.latest().number > first.number


def test_a_damaged_latest_one_is_passed_over_and_told_of(tmp_path, caplog):
    """S96, S98."""
    with Commits(tmp_path, keep=None) as commits:
        for _ in range(9):
            make(commits)
        (tmp_path / "000002" / "moment").write_bytes(b"all of th")
        (tmp_path / "000003" / "moment").unlink()
        (tmp_path / "000004" / "trainer" / "array").write_text("larg")
        (tmp_path / "000005" / "trainer" / "array").unlink()
        (tmp_path / "000006" / "manifest.json").write_bytes(b'{"form')
        (tmp_path / "000007" / "manifest.json").write_text(
            (tmp_path / "000007" / "manifest.json").read_text().replace('"format": 1', '"format": 9')
        )
        (tmp_path / "000008" / "trainer" / "array").write_text("Large")
        (tmp_path / "000009" / "manifest.json").unlink()
        assert commits.latest().number == 1
        assert make(commits).number == 10, "above what is damaged too"
    told = re.sub(re.escape(str(tmp_path)), "CHECKPOINTS", caplog.records[0].getMessage())
    remedy = "resume from another commit, or put back what is missing"
    version = "resume with the version that wrote it, or from the commit before it"
    assert told.split("; CHECKPOINTS") == [
        "commit CHECKPOINTS/000001 is taken, since what is newer is not whole: CHECKPOINTS/000002/moment: expected what was "
        f"written, got 9 bytes that are not the 9 of then; {remedy}",
        f"/000003/moment: expected what was written, got 0 bytes that are not the 9 of then; {remedy}",
        f"/000004/trainer/array: expected 5 bytes, got 4 bytes; {remedy}",
        f"/000005/trainer/array: expected 5 bytes, got No such file or directory; {remedy}",
        "/000006/manifest.json: expected a manifest of format 1, got 6 bytes of something else (Input data was truncated); "
        + version,
        f"/000007/manifest.json: expected a manifest of format 1, got format 9; {version}",
        f"/000008/trainer/array: expected 5 bytes, got as many that are damaged; {remedy}",
        f"/000009/manifest.json: expected a manifest, got none; {remedy}",
    ]


def test_where_none_is_whole_nobody_begins_anew_without_being_told(tmp_path):
    """S96."""
    with Commits(tmp_path) as commits:
        assert commits.latest() is None
        make(commits)
        (tmp_path / "000001" / "moment").unlink()
        told = r"expected a commit that is whole, got none of 1: .*000001/moment: expected what"
        with pytest.raises(CannotResume, match=told):
            commits.latest()


def test_the_latest_are_kept_and_the_best(tmp_path):
    with Commits(tmp_path, keep=2, best=lambda about: about.get("score")) as commits:
        for score in (1, 9, 3, None, 5):
            make(commits, {} if score is None else {"score": score})
    assert names(tmp_path) == ["000002", "000004", "000005"]


def test_all_are_kept_where_that_is_asked_for(tmp_path):
    with Commits(tmp_path, keep=None) as commits:
        assert [make(commits).number for _ in range(4)] == [1, 2, 3, 4]
    assert len(complete(tmp_path)) == 4


def test_what_somebody_reads_is_not_removed_and_goes_once_it_is_not_read(tmp_path):
    """S97: retention never deletes what a reader needs."""
    with Commits(tmp_path, keep=1) as commits:
        first = make(commits)
        with first.reading():
            make(commits)
            make(commits)
            assert names(tmp_path) == ["000001", "000003"]
            assert first.read_moment() == b"all of it"
        make(commits)
    assert names(tmp_path) == ["000004"]
    with pytest.raises(FileNotFoundError), first.reading():
        pass


def test_who_asks_for_one_that_is_being_removed_is_told(tmp_path, monkeypatch):
    """The manifest was opened, and then the folder went away."""
    import fcntl

    with Commits(tmp_path) as commits:
        first = make(commits)
    locked = fcntl.flock

    def late(file: object, how: int) -> None:
        shutil.rmtree(first.folder)
        locked(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    told = "expected a commit, got one that was just removed; take the latest"
    with pytest.raises(FileNotFoundError, match=told), first.reading():
        pass


def test_two_processes_do_not_write_the_same_commits(tmp_path):
    with Commits(tmp_path):
        with pytest.raises(
            BlockingIOError, match="expected nobody else to write, got another process that does; wait for its end"
        ):
            Commits(tmp_path).__enter__()
        code = f"from pathlib import Path; from flow.saving import Commits; Commits(Path({str(tmp_path)!r})).__enter__()"
        child = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert child.returncode == 1
        assert "BlockingIOError" in child.stderr
    with Commits(tmp_path) as again:
        make(again)


def test_a_folder_that_was_removed_is_made_again_and_locked_again(tmp_path):
    folder = tmp_path / "checkpoints"
    with Commits(folder) as commits:
        make(commits)
        shutil.rmtree(folder)
        assert commits.latest() is None
        made = make(commits)
        assert (made.number, commits.latest()) == (2, made)
        with pytest.raises(BlockingIOError):
            Commits(folder).__enter__()


def test_where_another_process_took_over_a_removed_folder_nothing_is_written(tmp_path):
    folder = tmp_path / "checkpoints"
    with Commits(folder) as commits:
        make(commits)
        shutil.rmtree(folder)
        with Commits(folder) as others:
            made = make(others)
            with pytest.raises(BlockingIOError):
                commits.begin()
            assert names(folder) == [made.folder.name]


def test_a_file_where_the_folder_should_be_is_told(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(
        OSError, match="expected a folder that can be written, got 'File exists'; name another, or free this one"
    ):
        Commits(tmp_path / "checkpoints").__enter__()


@pytest.mark.parametrize(("setting", "value"), [("every", 0), ("keep", 0)])
def test_a_number_below_one_is_refused(tmp_path, setting, value):
    with pytest.raises(ValueError, match=f"expected {setting} of at least 1, got 0, in Commits.*; raise it"):
        Commits(tmp_path, **{setting: value})


def test_what_was_saved_before_is_linked_and_outlives_the_one_it_was_of(tmp_path):
    with Commits(tmp_path, keep=1) as commits:
        first = make(commits)
        inode = (first.saved("trainer") / "array").stat().st_ino
        draft = commits.begin()
        second = commits.write(draft, {}, {"name": "rl"}, [b"more"], [lambda: commits.link(draft, first, "trainer")])
        assert not first.folder.exists()
    assert (second.saved("trainer") / "array").read_text() == "large"
    assert (second.saved("trainer") / "array").stat().st_ino == inode


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "000009").mkdir()
    with Commits(tmp_path, keep=1) as commits:
        assert commits.latest() is None
        assert [make(commits).number for _ in range(2)] == [10, 11]
    assert names(tmp_path) == ["000009", "000011", "notes.txt"]

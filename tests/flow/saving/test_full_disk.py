"""Disks that refuse by the means of the operating system: full, read-only, with a file where the folder was."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from saved_program import Program

from flow.saving import complete, newest

SCRIPT = Path(__file__).parents[1] / "importable" / "full_disk.py"


def in_a_process(folder: Path, first: int, last: int) -> tuple[int, dict]:
    """Run the program where files may not grow from one commit up to another; gives its exit status and what it says."""
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    child = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(first), str(last)], env=env, capture_output=True, text=True, check=False
    )
    assert child.stdout, child.stderr
    return child.returncode, json.loads(child.stdout)


def total_of(folder: Path) -> tuple[int, int]:
    """Items and sum in the newest commit, each file of which is as it was written."""
    program = Program(folder, steps=1)
    program.live()
    return len(program.sink.taken), program.sink.total


@pytest.mark.slow
def test_a_run_on_a_disk_that_is_full_for_a_while_goes_on_and_is_saved_once_there_is_room(tmp_path):
    """S98, S99."""
    code, said = in_a_process(tmp_path, 2, 4)
    assert code == 0
    assert said == {"status": "completed", "told": [errno.EFBIG, errno.EFBIG], "failure": "", "taken": 10}
    assert [commit.number for commit in complete(tmp_path)] == [4, 5]
    assert total_of(tmp_path) == (10, sum(n * n for n in range(10)))


@pytest.mark.slow
def test_a_run_on_a_disk_that_stays_full_ends_with_an_error_and_its_last_good_commit_whole(tmp_path):
    """S98, S99."""
    code, said = in_a_process(tmp_path, 3, 100)
    assert code == 1
    assert said["told"] == [errno.EFBIG] * 4, "of steps 3, 4 and 5, and once more at the end"
    assert said["failure"] == (
        "expected a commit at the end of graph 'sums', got '[Errno 27] File too large'; the latest good one is "
        f"{tmp_path / '000002'}. Make it possible to write in {tmp_path}, and go on from there"
    )
    newest(tmp_path).check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001", "000002", "lock"]
    code, said = in_a_process(tmp_path, 100, 100)
    assert (code, said["status"], said["taken"]) == (0, "completed", 10)


def test_a_file_where_the_folder_was_is_told_and_once_it_is_gone_the_run_is_saved(tmp_path):
    folder = tmp_path / "checkpoints"

    def swap(method: str) -> None:
        if method == "write" and len(program.sink.taken) == 4:
            shutil.rmtree(folder)
            folder.write_text("in the way")
        if method == "finish" and len(program.sink.taken) == 6:
            folder.unlink()

    program = Program(folder, steps=5)
    program.sink.fails = swap
    assert program.live().status == "completed"
    assert {type(error) for error in program.told} <= {FileNotFoundError, NotADirectoryError, FileExistsError}
    assert len(program.told) == 2
    assert total_of(folder) == (10, sum(n * n for n in range(10)))


@pytest.mark.skipif(os.geteuid() == 0, reason="the super-user writes where nobody may")
def test_a_folder_that_becomes_read_only_is_told_and_the_last_good_commit_unharmed(tmp_path):
    def shut(method: str) -> None:
        if method == "state" and len(program.sink.taken) == 4:
            tmp_path.chmod(0o500)
        if method == "finish" and len(program.sink.taken) == 6:
            tmp_path.chmod(0o700)

    program = Program(tmp_path, steps=5)
    program.sink.fails = shut
    assert program.live().status == "completed"
    assert [type(error) for error in program.told][:1] == [PermissionError]
    assert total_of(tmp_path)[0] == 10

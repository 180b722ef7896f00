"""What else befalls a training: a full disk, a folder that vanishes, a second process, interrupts, readers of its commits."""

import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from equal_lives import RUN, check_equal

from flow.testing import Process, Start

pytestmark = pytest.mark.soak
COMMITS = RUN / "checkpoints"
KEEP_ONE = ("resume", "runs/it", "--options.keep", "1", "--options.checkpoint-every", "1")


def test_a_training_that_is_interrupted_twice_while_a_tool_hangs_is_gone_on_with(
    start: Start, unkilled: Process, tmp_path: Path
) -> None:
    """SIGTERM suspends, a second one ends it at once; what was under way is made again."""
    slow = ("run", "counted", "--options.name", "it", "--delay.max-s", "3600", "--options.keep", "4")
    life = start(tmp_path, *slow, "--options.checkpoint-every", "3")
    life.wait_for(lambda: bool(life.told("begun")), "an episode")
    life.kill(signal.SIGTERM)
    life.wait_for(lambda: "interrupt again to stop at once" in life.output, "word of the interrupt")
    time.sleep(0.7)  # two within half a second count as one
    life.kill(signal.SIGTERM)
    assert life.wait() == 130, life.output
    life = start(tmp_path)
    assert life.wait() == 0, life.output
    assert "delay.max_s: 3600.0 before, 0.5 now; accepted" in life.output
    check_equal(life, unkilled)


@pytest.mark.parametrize("most_bytes", [3_000, 12_000, 40_000])
def test_a_training_on_a_disk_that_is_full_says_so_and_is_gone_on_with_where_there_is_room(
    start: Start, unkilled: Process, tmp_path: Path, most_bytes: int
) -> None:
    """S98, S99: each file may grow to a bound, as on a disk with little left."""
    life = start(tmp_path, most_bytes=most_bytes)
    assert life.wait() == 1, life.output
    assert re.search(r"Errno 27|File too large", life.output), life.output
    life = start(tmp_path)
    assert life.wait() == 0, life.output
    check_equal(life, unkilled)


@pytest.mark.parametrize("killed", [False, True])
def test_a_training_whose_commits_vanish_goes_on_and_can_be_begun_again(
    start: Start, unkilled: Process, tmp_path: Path, killed: bool
) -> None:
    """The commits to come are made; killed before the next one, the run has nothing to go on from and begins again."""
    life = start(tmp_path, halt=("commit.renamed", 6))
    life.wait_point("commit.renamed", 6)
    shutil.rmtree(tmp_path / COMMITS)
    life.kill(signal.SIGKILL if killed else signal.SIGCONT)
    assert life.wait() == (-9 if killed else 0), life.output
    if killed:
        life = start(tmp_path)
        assert life.wait() == 0, life.output
        assert "at its beginning: it has no commit" in life.output
    check_equal(life, unkilled)


def test_a_training_whose_commits_cannot_be_written_goes_on_to_the_end_of_its_graph_and_tells(
    start: Start, unkilled: Process, tmp_path: Path
) -> None:
    """S98, S99: a file is where the folder was, as good as a folder that is read only."""
    life = start(tmp_path, halt=("commit.renamed", 6))
    life.wait_point("commit.renamed", 6)
    (tmp_path / COMMITS).rename(tmp_path / "moved")
    (tmp_path / COMMITS).touch()
    life.kill(signal.SIGCONT)
    assert life.wait() == 1, life.output
    assert "a commit could not be made, and the run goes on" in life.output
    assert "expected a commit at the end of graph 'rl'" in life.output
    (tmp_path / COMMITS).unlink()
    (tmp_path / "moved").rename(tmp_path / COMMITS)
    life = start(tmp_path)
    assert life.wait() == 0, life.output
    check_equal(life, unkilled)


def test_of_two_processes_that_go_on_with_one_training_one_is_refused(start: Start, unkilled: Process, tmp_path: Path) -> None:
    first = start(tmp_path, halt=("commit.begin", 2))
    first.wait_point("commit.begin", 2)
    second = start(tmp_path)
    assert second.wait() == 2
    assert "got one that another process works on" in second.output
    first.kill(signal.SIGCONT)
    assert first.wait() == 0, first.output
    check_equal(first, unkilled)


@pytest.mark.parametrize("killed", [False, True])
def test_a_commit_that_an_evaluation_reads_stays_until_it_is_read(start: Start, tmp_path: Path, killed: bool) -> None:
    """Also where the reader is killed: its lock ends with it, and retention removes the commit next time."""
    assert start(tmp_path, die=("commit.renamed", 6)).wait() == -9
    read = max(int(path.name) for path in (tmp_path / COMMITS).glob("[0-9]*") if path.name.isdecimal())
    reader = start(tmp_path, "eval", "runs/it", halt=("commit.reading", 1))
    reader.wait_point("commit.reading")
    training = start(tmp_path, *KEEP_ONE, die=("commit.retained", 1))
    assert training.wait() == -9, training.output
    assert (tmp_path / COMMITS / f"{read:06}").exists()
    reader.kill(signal.SIGKILL if killed else signal.SIGCONT)
    assert reader.wait() == (-9 if killed else 0), reader.output
    training = start(tmp_path, "resume", "runs/it")
    assert training.wait() == 0, training.output
    assert len(list((tmp_path / COMMITS).glob("[0-9]*"))) == 1

"""What is saved of a run when, and what becomes of it where that cannot be."""

import asyncio
import logging
import shutil
import threading
from itertools import pairwise

import pytest
from saved_program import Counted, Program, Sum, refusing

from flow import Context, Run
from flow.saving import CommitFailed, Commits, NotResumable, Saving, complete, newest
from flow.trace import PerfettoWriter, read_trace

TRAINED = [number * number for number in range(8)]


class Quick(Sum):
    """Completes a step at once."""

    async def finish(self, context: Context) -> int:
        self.fails("finish")
        self.taken, self.step = [*self.taken, *self.step], []
        return 0


async def plain(number: int, context: Context) -> int:
    return number


def numbers_of(folder) -> list[int]:
    return [commit.number for commit in complete(folder)]


def steps_of(folder) -> int:
    """Items in the state of the newest commit, by what its sink saved beside it."""
    program = Program(folder)
    program.live()
    return len(program.sink.taken)


def test_a_commit_is_made_every_so_many_steps_and_after_the_last(tmp_path):
    program = Program(tmp_path, every=3, steps=7)
    assert program.live().status == "completed"
    assert program.sink.num_saved == 3
    assert numbers_of(tmp_path) == [2, 3], "after steps 3, 6 and 7, and the first is not kept"


def test_the_last_step_is_saved_where_only_the_end_of_the_source_makes_it_the_last(tmp_path):
    """P4: a step that nobody knew to be the last."""
    program = Program(tmp_path, every=3, steps=None, source=Counted(9))
    assert program.live().status == "completed"
    again = Program(tmp_path, every=3, steps=None, source=Counted(9))
    assert again.live().status == "completed"
    assert (again.sink.taken, again.sink.total) == (program.sink.taken, sum(n * n for n in range(9)))
    assert len(again.sink.taken) == 9


def test_a_run_that_was_drained_is_saved_with_its_last_step(tmp_path):
    program = Program(tmp_path, every=10, steps=None)
    assert program.live(drain_after_s=3.1).status == "drained"
    again = Program(tmp_path, every=10, steps=None)
    assert again.live().status == "completed"
    assert again.sink.taken == program.sink.taken != []


def test_a_run_that_is_suspended_between_two_steps_saves_the_sink_by_links(tmp_path):
    first = Program(tmp_path, steps=20)
    assert first.live(suspend_after_s=3.0).status == "suspended"
    second = Program(tmp_path, steps=20)
    assert second.live(suspend_after_s=0.2).status == "suspended"
    assert (second.sink.num_saved, second.sink.taken) == (0, first.sink.taken)
    files = [commit.saved("total") / "total" for commit in complete(tmp_path)]
    assert len({file.stat().st_ino for file in files}) == 1
    shutil.rmtree(complete(tmp_path)[0].folder)
    third = Program(tmp_path, steps=4)
    third.live()
    assert (third.sink.taken, third.sink.total) == (TRAINED, sum(TRAINED))


@pytest.mark.parametrize("point", ["commit.begin", "commit.moment", "commit.saved", "commit.manifest"])
def test_where_the_disk_refuses_once_the_run_goes_on_and_the_next_commit_is_made(tmp_path, point, caplog):
    """S98, S99: told at once, tried again, and the one before is as it was."""
    program = Program(tmp_path)
    with refusing(point, lambda nth: nth == 2):
        assert program.live().status == "completed"
    assert [str(error) for error in program.told] == ["[Errno 28] No space left on device"]
    assert caplog.messages == [
        "a commit could not be made, and the run goes on: [Errno 28] No space left on device; the latest good one is "
        f"{tmp_path / '000001'}"
    ]
    assert numbers_of(tmp_path) == [3, 4]
    assert steps_of(tmp_path) == 8


@pytest.mark.parametrize("method", ["save", "write"])
def test_where_the_sink_cannot_write_the_run_goes_on(tmp_path, method):
    """S98, S99."""

    def fail(called: str) -> None:
        if called == method and len(program.sink.taken) == 4:
            raise OSError(122, "Disk quota exceeded")

    program = Program(tmp_path)
    program.sink.fails = fail
    assert program.live().status == "completed"
    assert [error.errno for error in program.told] == [122] or method == "write"
    assert numbers_of(tmp_path)[-1] == 4
    assert steps_of(tmp_path) == 8


def test_where_the_last_commit_is_refused_it_is_tried_once_more(tmp_path):
    """S99."""
    program = Program(tmp_path)
    with refusing("commit.manifest", lambda nth: nth == 4):
        assert program.live().status == "completed"
    assert len(program.told) == 1
    assert steps_of(tmp_path) == 8


def test_a_run_whose_end_cannot_be_saved_says_so_at_its_end(tmp_path):
    """S99: with a non-zero status, and the last good commit unharmed."""
    program = Program(tmp_path)
    with refusing("commit.manifest", lambda nth: nth > 2), pytest.raises(CommitFailed) as failed:
        program.live()
    assert str(failed.value) == (
        "expected a commit at the end of graph 'sums', got '[Errno 28] No space left on device'; the latest good one is "
        f"{tmp_path / '000002'}. Make it possible to write in {tmp_path}, and go on from there"
    )
    assert isinstance(failed.value, OSError)
    assert numbers_of(tmp_path) == [1, 2]
    again = Program(tmp_path)
    assert again.live().status == "completed"
    assert (again.sink.taken, again.sink.total) == (TRAINED, sum(TRAINED))


def test_a_run_that_is_suspended_and_cannot_be_saved_says_so(tmp_path):
    program = Program(tmp_path)
    told = r"there is no good one before it\. Make it possible to write"
    with refusing("commit.saved"), pytest.raises(CommitFailed, match=told):
        program.live(suspend_after_s=1.5)
    assert numbers_of(tmp_path) == []


def test_a_folder_that_is_removed_in_mid_run_is_made_again(tmp_path, caplog):
    folder = tmp_path / "checkpoints"

    def vanish(method: str) -> None:
        if method == "write" and len(program.sink.taken) == 4:
            shutil.rmtree(folder)

    program = Program(folder)
    program.sink.fails = vanish
    assert program.live().status == "completed"
    assert len(program.told) == 1
    assert "there is no good one before it" in caplog.text
    assert numbers_of(folder) == [3, 4]
    assert steps_of(folder) == 8


@pytest.mark.parametrize("method", ["state", "save", "write"])
def test_an_error_that_is_not_of_the_disk_ends_the_run(tmp_path, method):
    """It would make every commit fail, and nobody would know until one was needed."""

    def fail(called: str) -> None:
        if called == method and len(program.sink.taken) == 4:
            raise RuntimeError("a fault of the program")

    program = Program(tmp_path)
    program.sink.fails = fail
    with pytest.raises(RuntimeError, match="a fault of the program"):
        program.live()
    assert numbers_of(tmp_path) == [1]
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_what_a_program_says_of_itself_is_in_the_commit_and_must_be_plain(tmp_path):
    Program(tmp_path, saving={"about": lambda: {"phase": 1}}).live()
    assert newest(tmp_path).manifest.about == {"phase": 1}
    with pytest.raises(TypeError, match="object"):
        Program(tmp_path / "other", saving={"about": lambda: {"phase": object()}}).live()


def test_what_on_failure_raises_ends_the_run(tmp_path):
    def tell(error: Exception) -> None:
        raise LookupError("no such mail box")

    with refusing("commit.saved"), pytest.raises(LookupError, match="no such mail box"):
        Program(tmp_path, saving={"on_failure": tell}).live()


def test_a_value_that_is_not_of_its_type_ends_the_run_where_it_is_to_be_saved(tmp_path):
    async def lies(number: int, context: Context) -> int:
        return 7.5 if number == 7 else number

    told = r"sums\.squares\.out: expected int, to be saved; got Expected `int`, got `float`; make the annotation"
    with pytest.raises(NotResumable, match=told):
        Program(tmp_path, stage=lies).live()
    assert numbers_of(tmp_path)[-1] < 4


def test_a_state_that_is_not_of_its_type_ends_the_run_too(tmp_path):
    program = Program(tmp_path)
    program.sink.taken = (1, "two")
    told = r"sums\.total\.state\(\): expected list\[int\], to be saved; got Expected `int`, got `str`"
    with pytest.raises(NotResumable, match=told):
        program.live(suspend_after_s=0.5)


def test_without_a_commit_a_run_begins_anew(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    assert Program(tmp_path).live().status == "completed"
    assert caplog.messages == []


def test_one_commit_is_written_at_a_time_on_a_thread_and_the_loop_goes_on_meanwhile(tmp_path):
    """P1: in real time. The sink takes its next step while the first commit is held up, and waits before the second."""
    log: list[str] = []
    free, second = threading.Event(), asyncio.Event()

    def note(method: str) -> None:
        if method in ("finish", "save", "write"):
            log.append(method)
        if log.count("finish") == 2 and method == "finish":
            asyncio.get_running_loop().call_later(0.02, second.set)
        if method == "write" and log.count("write") == 1:
            assert threading.current_thread() is not threading.main_thread()
            assert free.wait(10)

    async def live() -> str:
        program = Program(tmp_path, Quick(), stage=plain, steps=3)
        program.sink.fails = note
        with Commits(tmp_path) as commits:
            run = Run(program.graph().build(quiet=True), saving=Saving(commits))
            running = asyncio.get_running_loop().create_task(run.finish())
            await second.wait()
            waiting = log.count("finish"), log.count("save")
            free.set()
            assert waiting == (2, 1)
            return (await running).status

    assert asyncio.run(live()) == "completed"
    assert [method for method in log if method != "finish"] == ["save", "write"] * 3
    assert numbers_of(tmp_path) == [2, 3]


def test_the_writing_of_each_commit_is_in_the_trace_and_so_is_the_wait_of_the_sink(tmp_path):
    with PerfettoWriter(tmp_path / "run.pftrace") as recorder:
        assert Program(tmp_path / "checkpoints", recorder=recorder).live().status == "completed"
    trace = read_trace(tmp_path / "run.pftrace")
    written = [each for each in trace.slices if trace.tracks[each.track].name == "sums commits"]
    assert [(each.name, each.args) for each in written] == [("commit", {"number": number}) for number in (1, 2, 3, 4)]
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(written))
    assert sum(each.args.get("call") == "commit" for each in trace.slices) == 4

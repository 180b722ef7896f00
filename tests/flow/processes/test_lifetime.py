"""Processes from their start to their end: entered and left once, replaced, closed in time, and nothing of them left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import process_stages
import pytest
from process_stages import Job, Report, Resource

from flow._errors import WorkerDied
from flow._processes.crew import ProcessCrew
from flow.testing import context

pytestmark = pytest.mark.slow

NOTHING = {"processes": set(), "threads": set(), "descriptors": set(), "files": set()}


def crew_of(stage: object, workers: int = 1) -> ProcessCrew:
    return ProcessCrew("node", stage, Job, Report, workers)


def notes(folder: Path) -> list[list[str]]:
    """What each process wrote, in the order in which they began."""
    return [file.read_text().split() for file in sorted(folder.iterdir(), key=lambda file: int(file.name))]


def test_each_process_enters_and_leaves_the_stage_once_and_nothing_is_left(left, tmp_path):
    """S31, S99."""

    async def main() -> None:
        crew = crew_of(Resource(str(tmp_path)), 2)
        await crew.open()
        for text in "ab":
            assert (await crew.call(Job("sleep", text), context())).text == text
        await crew.close()

    asyncio.run(main())
    assert notes(tmp_path) == [["enter", "leave"]] * 2
    assert left() == NOTHING


@pytest.mark.parametrize(
    ("fail", "error", "text"),
    [("enter", OSError, "no device in"), ("die", WorkerDied, "exit code 5, while it started"), ("", ImportError, "not here")],
)
def test_a_stage_that_does_not_start_is_told_and_nothing_is_left(left, tmp_path, fail, error, text):
    stage = Resource(str(tmp_path), fail) if fail else process_stages.Explosive()

    async def main() -> None:
        with pytest.raises(error, match=text) as raised:
            await crew_of(stage, 2).open()
        if fail != "die":
            assert "process_stages.py" in raised.value.__notes__[0]

    asyncio.run(main())
    assert left() == NOTHING


def test_a_stage_that_cannot_be_left_is_told(left, tmp_path):
    """S99: nothing is only logged."""

    async def main() -> None:
        crew = crew_of(Resource(str(tmp_path), "leave"), 2)
        await crew.open()
        with pytest.raises(OSError, match="stuck") as raised:
            await crew.close()
        assert raised.value.__notes__[-1] == "and in another process: OSError: stuck"

    asyncio.run(main())
    assert left() == NOTHING


def test_closing_while_calls_run_ends_them_first(left, tmp_path):
    """S28: the asynchronous one cleans up, the one that blocks is killed, and the stage is left where it can be."""
    marker = tmp_path / "marker"
    folder = tmp_path / "notes"
    folder.mkdir()

    async def main() -> float:
        resource, blocking = crew_of(Resource(str(folder))), crew_of(process_stages.block)
        await asyncio.gather(resource.open(), blocking.open())
        calls = [
            asyncio.create_task(resource.call(Job("marked", str(marker), 30), context())),
            asyncio.create_task(blocking.call(Job("sleep", size=30), context())),
        ]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        closing = asyncio.gather(resource.close(), blocking.close())
        with pytest.raises(WorkerDied, match="it was closed"):
            await calls[0]
        with pytest.raises(WorkerDied, match="SIGKILL"):
            await calls[1]
        await closing
        with pytest.raises(WorkerDied, match="it was closed"):
            await resource.call(Job("sleep"), context())
        return time.monotonic() - began

    assert asyncio.run(main()) < 3
    assert marker.read_text() == "clean"
    assert notes(folder) == [["enter", "leave"]]
    assert left() == NOTHING


def test_a_cancelled_closing_closes_all_the_same(left, tmp_path):
    async def main() -> None:
        crew = crew_of(Resource(str(tmp_path)), 1)
        await crew.open()
        closing = asyncio.create_task(crew.close())
        for _ in range(3):
            await asyncio.sleep(0)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    asyncio.run(main())
    assert notes(tmp_path) == [["enter", "leave"]]
    assert left() == NOTHING


def test_an_opening_that_is_cancelled_leaves_nothing(left):
    async def main(after_s: float) -> None:
        opening = asyncio.create_task(crew_of(process_stages.act, 2).open())
        await asyncio.sleep(after_s)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    for after_s in (0, 0.005, 0.1):
        asyncio.run(main(after_s))
    assert left() == NOTHING


def test_a_place_where_no_process_starts_any_more_is_given_up(tmp_path):
    async def main() -> None:
        crew = crew_of(Resource(str(tmp_path), "enter again"))
        await crew.open()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            await crew.call(Job("kill"), context())
        with pytest.raises(WorkerDied, match="3 starts in its place failed, the last with OSError: no device") as raised:
            await crew.call(Job("sleep"), context())
        assert raised.value.for_good
        await crew.close()

    asyncio.run(main())
    assert len(notes(tmp_path)) == 4


def test_a_start_goes_on_where_the_call_that_waits_for_it_is_cancelled(tmp_path):
    """Else a stage that is entered more slowly than its deadline allows would never come back."""

    async def main() -> None:
        crew = crew_of(Resource(str(tmp_path), "slow again"))
        await crew.open()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            await crew.call(Job("kill"), context())
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(crew.call(Job("sleep"), context()), 0.05)
        assert (await crew.call(Job("sleep", "back"), context())).text == "back"
        await crew.close()

    asyncio.run(main())
    assert len(notes(tmp_path)) == 2


def test_a_crew_that_is_never_closed_ends_with_its_loop(left):
    async def main() -> None:
        crew = crew_of(process_stages.act, 2)
        await crew.open()
        call = asyncio.create_task(crew.call(Job("sleep", size=30), context()))
        await asyncio.sleep(0.05)
        assert not call.done()

    asyncio.run(main())
    assert left() == NOTHING


def test_a_process_imports_only_what_its_stage_does(runner, acting):
    assert runner.run(acting.call(Job("modules"), context())).text == ""


def test_processes_leave_interrupts_to_their_parent(runner, acting):
    """S26: the terminal sends one to all, and the parent judges."""

    async def pids() -> set[int]:
        return {answer.pid for answer in await asyncio.gather(*(acting.call(Job("sleep", size=0.05), context()) for _ in "ab"))}

    before = runner.run(pids())
    for pid in before:
        os.kill(pid, signal.SIGINT)
    assert (runner.run(pids()), len(before)) == (before, 2)
    assert all(os.getsid(pid) == pid for pid in before)  # nor does the terminal reach them


SCRIPT = """
import asyncio, os, sys
from dataclasses import dataclass
from flow import Context
from flow._processes.crew import ProcessCrew
from flow.testing import context

@dataclass(frozen=True)
class Count:
    number: int

class Own(Exception): ...

def work(count: Count, context: Context) -> Count:
    print("in the stage", count.number, flush=True)
    if count.number < 0:
        raise Own("below")
    return Count(count.number + 1)

async def main() -> None:
    crew = ProcessCrew("node", work, Count, Count, 1)
    await crew.open()
    print(await crew.call(Count(4), context()))
    try:
        await crew.call(Count(-1), context())
    except Own as error:
        print("own", error)
    await crew.close()

GUARD
    asyncio.run(main())
"""


def script(folder: Path, guard: str) -> "subprocess.CompletedProcess[str]":
    (folder / "my_script.py").write_text(SCRIPT.replace("GUARD", guard))
    command = [sys.executable, "my_script.py"]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    return subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True, timeout=30)


def test_a_stage_of_the_users_script_is_found_and_prints_where_the_script_does(tmp_path):
    ended = script(tmp_path, 'if __name__ == "__main__":')
    assert (ended.stdout, ended.stderr) == ("in the stage 4\nCount(number=5)\nin the stage -1\nown below\n", "")


def test_a_script_without_a_guard_is_refused_and_does_not_start_itself_for_ever(tmp_path):
    ended = script(tmp_path, "if True:")
    assert ended.returncode == 1
    text = "my_script.py, which defines the stage of 'node', to start its run under `if __name__ == \"__main__\":`, got a start"
    assert text in ended.stderr


ORPHANS = """
import asyncio, sys
sys.path.insert(0, FOLDER)
import process_stages
from process_stages import Job, Report
from flow._processes.crew import ProcessCrew
from flow.testing import context

async def main() -> None:
    idle, busy, blocked = crews = [
        ProcessCrew("node", stage, Job, Report, 1)
        for stage in (process_stages.Resource(NOTES), process_stages.act, process_stages.block)
    ]
    await asyncio.gather(*(crew.open() for crew in crews))
    calls = [busy.call(Job("marked", MARKER, 60), context()), blocked.call(Job("sleep", size=60), context())]
    calls = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0.1)
    print(*(crew._places[0]._child._process.pid for crew in crews), flush=True)
    await asyncio.gather(*calls)

asyncio.run(main())
"""


def test_processes_end_with_their_parent_also_where_it_was_killed(tmp_path):
    """S26, S28: the idle one leaves its stage, the asynchronous attempt cleans up, the one that blocks just ends."""
    folder, marker = tmp_path / "notes", tmp_path / "marker"
    folder.mkdir()
    names = {"FOLDER": str(Path(process_stages.__file__).parent), "NOTES": str(folder), "MARKER": str(marker)}
    code = "\n".join(f"{name} = {value!r}" for name, value in names.items()) + ORPHANS
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3
        parent.kill()
    until = time.monotonic() + 5
    while (alive := [pid for pid in pids if running(pid)]) and time.monotonic() < until:
        time.sleep(0.01)
    assert alive == []
    assert (notes(folder), marker.read_text()) == ([["enter", "leave"]], "clean")


def running(pid: int) -> bool:
    """Whether a process is there and not only waits for somebody to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

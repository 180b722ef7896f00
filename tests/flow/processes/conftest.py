"""Processes are dear to start, so the tests of a file share a crew of each kind, on one loop."""

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import process_stages
import pytest

from flow._processes.crew import ProcessCrew


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def hire(runner: asyncio.Runner) -> Iterator[Callable[..., ProcessCrew]]:
    """Make and open a crew that is closed after the last test of the file."""
    crews: list[ProcessCrew] = []

    def hire(stage: Any, workers: int = 1, reads_type: Any = None, **options: Any) -> ProcessCrew:
        crew = ProcessCrew("node", stage, process_stages.Job, process_stages.Report, workers, reads_type, **options)
        crews.append(crew)
        runner.run(crew.open())
        return crew

    yield hire
    for crew in crews:
        runner.run(crew.close())


@pytest.fixture(scope="module")
def acting(hire: Callable[..., ProcessCrew]) -> ProcessCrew:
    """Two processes of the stage that does what the job says."""
    return hire(process_stages.act, 2)


@pytest.fixture(scope="module")
def blocking(hire: Callable[..., ProcessCrew]) -> ProcessCrew:
    """Two processes of the stage that blocks, or ends its process."""
    return hire(process_stages.block, 2)


def children() -> set[int]:
    """Processes that this one has started and that are not gone."""
    while True:
        try:
            return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
        except FileNotFoundError:
            # A thread ended while its list was to be read: another one has its children now.
            continue


@pytest.fixture
def left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, set[Any]]]:
    """Tells what there is that was not there when the test began."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    def now() -> dict[str, set[Any]]:
        return {
            "processes": children(),
            "threads": set(threading.enumerate()),
            "descriptors": set(os.listdir("/proc/self/fd")),
            "files": set(folder.iterdir()),
        }

    before = now()

    def left() -> dict[str, set[Any]]:
        for thread in threading.enumerate():
            if "waitpid" in thread.name:
                thread.join(5)  # it has told of the end of its process, and ends
        after = now()
        return {kind: after[kind] - before[kind] for kind in before}

    return left

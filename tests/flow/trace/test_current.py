"""Who records: whoever is set around the calling code, and a run for its stages."""

import asyncio
import threading
from pathlib import Path

from flow import Context, Graph, Run
from flow.testing import Collected, run_virtual
from flow.trace import PerfettoWriter, Recorder, current_recorder, read_trace, recording


def test_what_is_called_inside_records_there_tasks_and_their_threads_too(tmp_path: Path) -> None:
    async def asked() -> tuple[Recorder | None, Recorder | None]:
        return current_recorder(), await asyncio.to_thread(current_recorder)

    with PerfettoWriter(tmp_path / "outer") as outer, PerfettoWriter(tmp_path / "inner") as inner:
        with recording(outer):
            assert asyncio.run(asked()) == (outer, outer)
            with recording(inner):
                assert current_recorder() is inner
            with recording(None):
                assert current_recorder() is outer
            started: list[Recorder | None] = []
            thread = threading.Thread(target=lambda: started.append(current_recorder()))
            thread.start()
            thread.join()
        assert current_recorder() is None
    assert started == [None], "a thread of one's own is told"


class Opened:
    """A stage that shows on a track of its own when it was opened and when it was closed."""

    async def __aenter__(self) -> "Opened":
        self.recorder = current_recorder()
        assert self.recorder is not None
        self.recorder.begin(self.recorder.track("opened"), "open", int(asyncio.get_running_loop().time() * 1e9))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.recorder is current_recorder()
        self.recorder.end(self.recorder.track("opened"), int(asyncio.get_running_loop().time() * 1e9))

    async def __call__(self, value: int, context: Context) -> int:
        await asyncio.sleep(1.0)
        return value


def test_a_run_that_is_recorded_has_its_stages_record_there_when_they_open(tmp_path: Path) -> None:
    graph, opened = Graph("graph"), Opened()
    _ = graph.source("numbers", range(3)) >> graph.stage("opened", opened) >> graph.sink("end", Collected())
    with PerfettoWriter(tmp_path / "run.pftrace") as recorder:
        run_virtual(Run(graph.build(), recorder=recorder).finish())
        assert opened.recorder is recorder
    (slice_,) = (each for each in read_trace(tmp_path).slices if each.name == "open")
    assert slice_.end_ns - slice_.start_ns >= 3e9

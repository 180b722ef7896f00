"""A small program that is saved: numbers are squared and summed in steps. Each of its parts can be made to misbehave."""

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flow import Collect, Context, Graph, Inline, Run, Summary
from flow.saving import Commits, Saving, newest
from flow.saving._points import listeners
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor


class Counted:
    """A source that counts up to a number."""

    def __init__(self, most: int = 1000) -> None:
        self.most, self.drawn = most, 0

    def draw(self) -> int:
        if self.drawn == self.most:
            raise StopIteration
        self.drawn += 1
        return self.drawn - 1

    def state(self) -> int:
        return self.drawn

    def restore(self, state: int) -> None:
        self.drawn = state


class Sum:
    """A sink whose sum is in a file of its own, and whose steps are its state."""

    def __init__(self) -> None:
        self.total, self.taken, self.step = 0, [], []
        self.num_saved = 0
        self.fails: Callable[[str], None] = lambda method: None

    async def add(self, value: int, context: Context) -> None:
        self.step.append(value)

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(1)
        self.fails("finish")
        self.total += sum(self.step)
        self.taken += self.step
        self.step = []
        return self.total

    def state(self) -> list[int]:
        self.fails("state")
        return self.taken

    def restore(self, state: list[int]) -> None:
        self.fails("restore")
        self.taken = state

    def save(self, folder: Path) -> Callable[[], None]:
        self.fails("save")
        self.num_saved += 1
        content = str(self.total)

        def write() -> None:
            self.fails("write")
            folder.mkdir()
            (folder / "total").write_text(content)

        return write

    def load(self, folder: Path) -> None:
        self.fails("load")
        self.total = int((folder / "total").read_text())


async def square(number: int, context: Context) -> int:
    await asyncio.sleep(0.3)
    return number * number


@dataclass
class Program:
    """One life of it.

    Attributes:
        folder: of its commits.
        saving: further settings of ``Saving``.
        told: errors that ``on_failure`` was told of.
        steps: steps of the sink; ``None`` for as many as the source has items for.
        first: capacity of the edge behind the source.
        second: capacity of the edge before the sink.
        placement: of the source.
        change: what is made of the graph.
    """

    folder: Path
    sink: Sum = field(default_factory=Sum)
    source: Any = field(default_factory=Counted)
    saving: dict[str, Any] = field(default_factory=dict)
    every: int = 1
    steps: int | None = 4
    workers: int = 2
    stage: Any = square
    told: list[Exception] = field(default_factory=list)
    first: Any = None
    second: Any = None
    placement: Any = field(default_factory=Inline)
    change: Callable[[Graph], Graph] = lambda graph: graph
    recorder: Any = None
    run: Run | None = None

    def graph(self) -> Graph:
        graph = Graph("sums")
        numbers = graph.source("numbers", self.source, placement=self.placement)
        squares = graph.stage("squares", self.stage, workers=self.workers, order="input")
        end = "short" if self.steps is None else "drop"
        total = graph.sink("total", self.sink, collect=Collect(2, steps=self.steps, end=end))
        graph.edge(numbers, squares, capacity=self.first)
        graph.edge(squares, total, capacity=self.second)
        return self.change(graph)

    def live(self, *, suspend_after_s: float | None = None, drain_after_s: float | None = None) -> Summary:
        """Run it from the newest commit on."""

        async def main() -> Summary:
            with Commits(self.folder, every=self.every) as commits:
                settings = {"on_failure": self.told.append, "resume": newest(self.folder), **self.saving}
                saving = Saving(commits, **settings)
                self.run = Run(self.graph().build(quiet=True), stall_s=None, saving=saving, recorder=self.recorder)
                self.run.threads = PlayedExecutor
                for after_s, stop in ((suspend_after_s, self.run.suspend), (drain_after_s, self.run.drain)):
                    if after_s is not None:
                        asyncio.get_running_loop().call_later(after_s, stop)
                return await self.run.finish()

        return run_virtual(main(), deadline_s=1e5)


@contextmanager
def refusing(point: str, which: Callable[[int], bool] = lambda nth: True, error: Exception | None = None):
    """The disk refuses at a point: at each pass of it for which ``which`` of its number, from 1, says so."""
    passed = 0

    def listener(reached: str) -> None:
        nonlocal passed
        if reached == point:
            passed += 1
            if which(passed):
                raise error or OSError(28, "No space left on device")

    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)

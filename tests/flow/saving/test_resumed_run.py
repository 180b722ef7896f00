"""A run that is cut off anywhere and gone on with from its latest commit ends as one that was never cut off."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from flow import Collect, Context, Failed, Freshness, Gathered, Graph, Retry, Run, Summary
from flow.saving import Commits, Resumable, Saves, Saving
from flow.testing import run_virtual
from flow.testing._threads import PlayedExecutor


class Place(msgspec.Struct, frozen=True):
    """Where a source is."""

    drawn: int


class Numbers:
    """A source that counts."""

    def __init__(self, most: int) -> None:
        self._most, self._drawn = most, 0

    def draw(self) -> int:
        if self._drawn == self._most:
            raise StopIteration
        self._drawn += 1
        return self._drawn - 1

    def state(self) -> Place:
        return Place(self._drawn)

    def restore(self, state: Place) -> None:
        self._drawn = state.drawn


class Summing:
    """A sink whose weight is a function of all it was trained on, in order; it keeps the weight in a file of its own."""

    def __init__(self, clock: random.Random) -> None:
        self.weight, self.steps, self._clock = 1, [], clock
        self._step: list[tuple[int, tuple[int, ...]]] = []

    async def add(self, group: Gathered[int], context: Context) -> None:
        await asyncio.sleep(self._clock.choice([0, 0.2]))
        self._step.append((context.birth, group.members))

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(self._clock.choice([0, 0.1]))  # a cancel here has changed nothing
        for birth, members in self._step:
            for value in members:
                self.weight = (self.weight * 31 + birth * 7 + value) % 1_000_003
        self.steps.append(list(self._step))
        self._step = []
        return self.weight

    def state(self) -> int:
        return len(self.steps)

    def restore(self, state: int) -> None:
        assert state == len(self.steps)

    def save(self, folder: Path) -> Callable[[], None]:
        content = json.dumps([self.weight, self.steps])

        def write() -> None:
            folder.mkdir()
            (folder / "weight.json").write_text(content)

        return write

    def load(self, folder: Path) -> None:
        self.weight, steps = json.loads((folder / "weight.json").read_text())
        self.steps = [[(birth, tuple(members)) for birth, members in step] for step in steps]
        self._step = []


class Rows:
    """A watcher that is saved beside the graph."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def committed(self, node: str, values: object) -> None: ...

    def reported(self, node: str, row: dict[str, int]) -> None:
        self.rows.append(row["step"])

    def state(self) -> list[int]:
        return self.rows

    def restore(self, state: list[int]) -> None:
        self.rows = list(state)


def graph_of(sink: Summing, clock: random.Random, *, max_lag: int = 0) -> Graph:
    """Episodes whose result is a function of the weight they were made with, some of which fail at first."""

    async def play(number: int, context: Context) -> int | Failed[int]:
        await asyncio.sleep(clock.choice([0, 0, 0.3, 1]))
        version = context.read()
        if (number + context.member + context.retry) % 5 == 0:
            return Failed(0, "unlucky")
        return (version.value * 3 + number * 11 + context.member + 100 * context.retry) % 10_007

    graph = Graph("summing")
    cell = graph.latest("weight", int)
    numbers = graph.source("numbers", Numbers(1000))
    members = graph.repeat("members", numbers, n=3)
    played = graph.stage("play", play, workers=5, reads=cell)
    groups = graph.group("groups", played, missing=Retry(2, then="drop"))
    trainer = graph.sink("trainer", sink, collect=Collect(2, steps=12))
    numbers >> members >> played >> groups >> trainer
    graph.feedback(trainer, cell, initial=lambda: sink.weight, freshness=Freshness(max_lag))
    return graph


def run(
    folder: Path, seed: int, cut_after_s: float | None, *, suspend: bool, every: int = 1
) -> tuple[Summing, Summary | None, Rows]:
    """Go on from the latest commit, up to a time at which everything is lost that is not on the disk, or to the end."""
    clock, rows = random.Random(seed), Rows()
    sink = Summing(clock)

    async def main() -> Summary | None:
        with Commits(folder, every=every) as commits:
            saving = Saving(commits, beside={"rows": rows}, resume=commits.latest())
            running = Run(graph_of(sink, clock).build(), saving=saving, watchers=(rows,))
            running.threads = PlayedExecutor
            loop = asyncio.get_running_loop()
            if cut_after_s is not None and suspend:
                loop.call_later(cut_after_s, running.suspend)
            elif cut_after_s is not None:
                loop.call_later(cut_after_s, running.abort, RuntimeError("the lights went out"))
            try:
                return await running.finish()
            except RuntimeError:
                return None

    return sink, run_virtual(main(), seed=seed), rows


def test_what_declares_a_state_is_seen_as_such():
    assert isinstance(Numbers(1), Resumable)
    assert isinstance(Summing(random.Random()), Saves)
    assert not isinstance(range(3), Resumable)


@pytest.mark.parametrize("seed", range(12))
def test_a_run_that_is_cut_off_again_and_again_trains_the_same_steps_to_the_same_weight(tmp_path, seed):
    """P1, P2, P4, P6, S92, S95, S100."""
    whole, summary, _ = run(tmp_path / "whole", 0, None, suspend=False)
    assert summary is not None
    assert summary.status == "completed"
    clock = random.Random(seed)
    for number in range(40):
        cut = run(tmp_path / "cut", 100 * seed + number, 3 * clock.random(), suspend=clock.random() < 0.5, every=1 + seed % 3)
        if cut[1] is not None and cut[1].status == "completed":
            break
    else:
        cut = run(tmp_path / "cut", seed, None, suspend=False)
    assert cut[0].steps == whole.steps
    assert cut[0].weight == whole.weight
    assert cut[1].balanced

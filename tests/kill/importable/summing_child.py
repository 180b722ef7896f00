"""A graph of flow alone in processes that may be killed; see ``forks.py``. Arguments: steps from one commit to the
next, and the most versions that an episode may lag behind.

Episodes take a random time, some fail at first, and each is a function of the weight it was made with; the weight is a function
of all that was trained, in order. A run takes a tenth of a second, so it can be killed a hundred times.
"""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import msgspec

from flow import Collect, Context, Failed, Freshness, Gathered, Graph, Retry, Run
from flow.saving import Commits, Journal, Saving, newest
from flow.saving._records import Made
from flow.testing import appended, serve

STEPS, WORKERS, MEMBERS, GROUPS = 8, 6, 3, 2
CLOCK = random.SystemRandom()


class Place(msgspec.Struct, frozen=True):
    """Where the source is."""

    drawn: int


class Numbers:
    """A source that counts."""

    def __init__(self) -> None:
        self._drawn = 0

    def draw(self) -> int:
        self._drawn += 1
        return self._drawn - 1

    def state(self) -> Place:
        return Place(self._drawn)

    def restore(self, state: Place) -> None:
        self._drawn = state.drawn


class Summing:
    """A sink that keeps its weight in a file of its own."""

    def __init__(self) -> None:
        self.weight, self._steps = 1, 0
        self._step: list[tuple[int, tuple[int, ...]]] = []

    async def add(self, group: Gathered[int], context: Context) -> None:
        self._step.append((context.birth, group.members))
        appended("lag", context.lag)

    async def finish(self, context: Context) -> int:
        for birth, members in self._step:
            for value in members:
                self.weight = (self.weight * 31 + birth * 7 + value) % 1_000_003
        self._steps += 1
        appended("trained", self._steps, json.dumps(self._step).replace(" ", ""), self.weight)
        self._step = []
        return self.weight

    def state(self) -> int:
        return self._steps

    def restore(self, state: int) -> None:
        self._steps = state

    def save(self, folder: Path) -> Callable[[], None]:
        weight = self.weight

        def write() -> None:
            folder.mkdir()
            (folder / "weight").write_text(str(weight))

        return write

    def load(self, folder: Path) -> None:
        self.weight = int((folder / "weight").read_text())


class ToldJournal(Journal):
    """A journal that tells, beside it, of each attempt that it has: from there on none of that retry may begin."""

    def keep(self, made: Made) -> None:
        super().keep(made)
        appended("noted", *made.path, made.retry, made.attempt)


async def play(number: int, context: Context) -> int | Failed[int]:
    name = f"{number} {context.member} {context.retry} {context.attempt}"
    appended("begun", name)
    version = context.read()
    await asyncio.sleep(CLOCK.choice([0, 0, 0.001, 0.004]))
    if (number + context.member + context.retry) % 5 == 0:
        return Failed(0, "unlucky")
    return (version.value * 3 + number * 11 + context.member + 100 * context.retry) % 10_007


def graph_of(sink: Summing, max_lag: int) -> Graph:
    graph = Graph("summing")
    cell = graph.latest("weight", int)
    numbers = graph.source("numbers", Numbers())
    members = graph.repeat("members", numbers, n=MEMBERS)
    played = graph.stage("play", play, workers=WORKERS, reads=cell)
    groups = graph.group("groups", played, missing=Retry(2, then="drop"))
    trainer = graph.sink("trainer", sink, collect=Collect(GROUPS, steps=STEPS))
    _ = numbers >> members >> played >> groups >> trainer
    graph.edge(played, groups, durable=True)
    graph.feedback(trainer, cell, initial=lambda: sink.weight, freshness=Freshness(max_lag))
    return graph


async def run(every: int, max_lag: int) -> None:
    """Go on from the latest commit to the end."""
    sink = Summing()
    before = newest(Path("commits"))
    journal = ToldJournal(Path("journal"), after=0 if before is None else before.number)
    with Commits(Path("commits"), every=every) as commits, journal:
        saving = Saving(commits, resume=before, journal=journal)
        summary = await Run(graph_of(sink, max_lag).build(), saving=saving).finish()
    appended("completed", sink.weight, summary.balanced)


def main(arguments: list[str]) -> None:
    every, max_lag = map(int, arguments)
    asyncio.run(run(every, max_lag))


if __name__ == "__main__":
    serve(main)

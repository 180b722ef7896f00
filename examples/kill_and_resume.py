"""A run that kills itself, for real, twice in the middle of its steps, and goes on each time from its latest commit.

It ends with the weight of a run that was never killed, and no finished episode is played again: each is noted in a journal.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from flow import Collect, Context, Freshness, Gathered, Graph, Run
from flow.saving import Commits, Journal, Saving

STEPS = 12


class Learner:
    """A sink whose weight depends on all it was given, in order. What it is between two steps is its state."""

    def __init__(self, dies_at: int) -> None:
        self.weight, self.step, self._dies_at = 1, 0, dies_at
        self._total = 0

    async def add(self, group: Gathered[int], context: Context) -> None:
        self._total += sum(group.members)
        if self.step == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def finish(self, context: Context) -> int:
        self.weight, self.step = (31 * self.weight + self._total) % 1_000_003, self.step + 1
        self._total = 0
        return self.weight

    def state(self) -> tuple[int, int]:
        return self.weight, self.step

    def restore(self, state: tuple[int, int]) -> None:
        self.weight, self.step = state


def learning(learner: Learner, played: Path) -> Graph:
    async def play(number: int, context: Context) -> int:
        await asyncio.sleep(random.random() / 100)
        with played.open("a") as file:
            file.write(f"{context.birth} {context.member}\n")
        return number * context.read().value + context.member

    graph = Graph("learning")
    weight = graph.latest("weight", int)
    numbers = graph.source("numbers", range(1000))  # a sequence: its place needs no state
    members = graph.repeat("members", numbers, n=4)
    episodes = graph.stage("episodes", play, workers=8, reads=weight)
    groups = graph.group("groups", episodes)
    trainer = graph.sink("trainer", learner, collect=Collect(2, steps=STEPS))
    numbers >> members >> episodes >> groups >> trainer
    graph.edge(episodes, groups, durable=True)
    graph.feedback(trainer, weight, initial=lambda: learner.weight, freshness=Freshness(0))
    return graph


async def live(folder: Path, dies_at: int) -> None:
    """One life of the run: from its latest commit to its end, or to its death."""
    learner = Learner(dies_at)
    graph = learning(learner, folder / "played")
    with Commits(folder / "checkpoints", every=2) as commits:
        latest = commits.latest()
        with Journal(folder / "journal", after=latest.number if latest else 0) as journal:
            await Run(graph.build(), saving=Saving(commits, resume=latest, journal=journal)).finish()
    (folder / "weight").write_text(str(learner.weight))


def lives(folder: Path, deaths: tuple[int, ...]) -> tuple[str, list[str]]:
    """The weight that a run ends with, and the episodes that were played."""
    folder.mkdir()
    for dies_at in (*deaths, STEPS):
        ended = subprocess.run([sys.executable, __file__, str(folder), str(dies_at)]).returncode
        print(f"{folder.name}: {'came to its end' if ended == 0 else f'killed by {signal.Signals(-ended).name}'}")
    return (folder / "weight").read_text(), (folder / "played").read_text().splitlines()


def main() -> None:
    with tempfile.TemporaryDirectory() as there:
        whole, _ = lives(Path(there) / "whole", ())
        killed, played = lives(Path(there) / "killed", (3, 8))
    print(f"{len(played)} episodes were played, {len(set(played))} of them different")
    print(f"weight {whole} without kills, {killed} with two, the same: {whole == killed}")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2])))
    else:
        main()

"""Kill and resume: a graph that is saved after each step is killed three times, and adds every number once all the same.

The child process goes on from the newest commit in its folder. The parent waits for the next one, and sends SIGKILL.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flow import Collect, Context, Graph, Run
from flow.saving import Commits, Saving, newest

KILLS = 3
STEPS = 40


class Numbers:
    """A source that says where it is."""

    def __init__(self) -> None:
        self.drawn = 0

    def draw(self) -> int:
        self.drawn += 1
        return self.drawn

    def state(self) -> int:
        return self.drawn

    def restore(self, state: int) -> None:
        self.drawn = state


class Sum:
    """A sink that says what its steps came to."""

    def __init__(self) -> None:
        self.total, self.step = 0, list[int]()

    async def add(self, number: int, context: Context) -> None:
        self.step.append(number)

    async def finish(self, context: Context) -> None:
        await asyncio.sleep(0.02)
        self.total += sum(self.step)
        self.step = []

    def state(self) -> int:
        return self.total

    def restore(self, state: int) -> None:
        self.total = state


async def slow(number: int, context: Context) -> int:
    await asyncio.sleep(0.01)
    return number


async def live(folder: Path) -> int:
    graph, total = Graph("sums"), Sum()
    numbers, slowly = graph.source("numbers", Numbers()), graph.stage("slowly", slow, workers=8, order="input")
    numbers >> slowly >> graph.sink("total", total, collect=Collect(5, steps=STEPS))
    with Commits(folder) as commits:
        await Run(graph.build(), saving=Saving(commits, resume=commits.latest())).finish()
    return total.total


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(KILLS):
            before = newest(Path(folder))
            with subprocess.Popen([sys.executable, __file__, folder]) as child:
                while newest(Path(folder)) == before:
                    time.sleep(0.01)
                child.kill()
            commit = newest(Path(folder))
            print(f"killed after commit {commit.number if commit else 0}")
        total = asyncio.run(live(Path(folder)))
    wanted = sum(range(1, 5 * STEPS + 1))
    print(f"killed {KILLS} times, and the sum is {total}: {total == wanted}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(live(Path(sys.argv[1])))
    else:
        main()

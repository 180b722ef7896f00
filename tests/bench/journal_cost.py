"""What a journal costs: an append of an episode of 33 kB, and a line with a durable edge against the same without.

An append is one ``write()``, which survives the death of the process. What it would cost to wait for the disk as well is told
beside it, and is why that is left to commits. Targets, encoding included: 100 microseconds an append, 150 an item of the line;
an episode takes a second to make at the very least. Seconds of processor time, since the machine may be shared; with the disk,
on the wall.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from flow import Collect, Context, Graph, Run
from flow.saving import Commits, Journal, Saving
from flow.saving._records import Begun, Made, frame

EPISODES, ITEMS, REPEATS = 300, 2_000, 5
APPEND_US, LINE_US = 100.0, 150.0


class Episode(msgspec.Struct, frozen=True):
    """4,096 tokens and what belongs to each, as bytes: 33 kB."""

    tokens: bytes = os.urandom(4 * 4096)
    logprobs: bytes = os.urandom(4 * 4096)


async def play(number: int, context: Context) -> Episode:
    return Episode()


class Count:
    """A sink that keeps nothing."""

    def add(self, value: Episode, context: Context) -> None: ...

    def finish(self, context: Context) -> int:
        return 0


def line(*, durable: bool) -> Graph:
    """Numbers, an episode of each, a sink."""
    graph = Graph("line")
    numbers = graph.source("numbers", range(ITEMS))
    played = graph.stage("play", play)
    counted = graph.sink("count", Count(), collect=Collect(ITEMS, steps=1))
    numbers >> played >> counted
    graph.edge(played, counted, durable=durable)
    return graph


def seconds_of_line(folder: Path, *, durable: bool) -> float:
    """Processor time of one run."""
    with Commits(folder / "checkpoints") as commits, Journal(folder / "journal") as journal:
        run = Run(line(durable=durable).build(quiet=True), saving=Saving(commits, journal=journal))
        began = time.process_time()
        asyncio.run(run.finish())
        return time.process_time() - began


def appends_us(folder: Path, *, sync: bool) -> list[float]:
    """Microseconds of each append of what an attempt came to, encoding included: of the processor, or with the disk's."""
    encode, episode, found = msgspec.msgpack.Encoder().encode, Episode(), list[float]()
    clock = time.perf_counter if sync else time.process_time
    with Journal(folder) as journal:
        handle = os.open(folder / "000000.log", os.O_WRONLY)
        for index in range(EPISODES):
            began = clock()
            value = encode(episode)
            journal.keep(made(index, value))
            if sync:
                os.fdatasync(handle)
            found.append(1e6 * (clock() - began))
        os.close(handle)
    return found


def made(index: int, value: bytes) -> Made:
    """What an attempt came to."""
    return Made("rl", "episodes", (index, 3), 0, index, 3, 0, None, 7, 7, (2**60, None), "plain", "", "", (value,))


def microseconds(function: Callable[[], object], times: int = 2000) -> float:
    """Of one call."""
    began = time.process_time()
    for _ in range(times):
        function()
    return 1e6 * (time.process_time() - began) / times


def main() -> None:
    """Print each cost, and all as JSON on the last line."""
    value = msgspec.msgpack.encode(Episode())
    framed = microseconds(lambda: frame(made(0, value)), 500)
    begun = microseconds(lambda: frame(Begun("rl", "episodes", (5, 3), 0, 0)))
    with tempfile.TemporaryDirectory() as folder:
        plain = [statistics.median(appends_us(Path(folder) / f"plain{n}", sync=False)) for n in range(REPEATS)]
        synced = sorted(appends_us(Path(folder) / "synced", sync=True))
        lines = {
            durable: [seconds_of_line(Path(folder) / f"{durable}{n}", durable=durable) for n in range(REPEATS)]
            for durable in (False, True)
        }
    append, sync = statistics.median(plain), statistics.median(synced)
    per_item = 1e6 * (statistics.median(lines[True]) - statistics.median(lines[False])) / ITEMS
    print(
        f"append of 33 kB: {append:.0f} us, of which checksum and frame {framed:.0f} us; a record of a beginning {begun:.1f} us"
    )
    print(f"with fdatasync:  {sync:.0f} us at the median, {synced[int(0.95 * len(synced))]:.0f} us at the 95th percentile")
    print(f"a line of episodes of 33 kB before a durable edge: {per_item:.0f} us more an item than the same without")
    detail = {"append_us": plain, "fdatasync_us": {"median": sync, "p95": synced[int(0.95 * len(synced))]}, "line_us": per_item}
    ratios = {
        "append_of_target": append / APPEND_US,
        "line_of_target": per_item / LINE_US,
        "fdatasync_of_append": sync / append,
    }
    targets = {"append_of_target": 1.0, "line_of_target": 1.0}
    print(json.dumps({"bench": "journal_cost", "ratios": ratios, "targets": targets, "detail": detail}))


if __name__ == "__main__":
    main()

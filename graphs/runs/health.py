"""How a phase is doing, told every few seconds as a row of metrics: rates, groups that wait, memory, the loop's lag.

Read from what the run counts anyway, so it costs some tens of microseconds a second. What the figures are called and mean is in
``metrics``; who judges them is in ``graphs.alerts``.
"""

import asyncio
import contextlib
import resource
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flow import Run, Summary
from flow.trace import LoopLag
from graphs.runs.errors import ErrorFiles
from graphs.runs.folder import HELDOUT, RunFolder
from graphs.runs.metrics import HEALTH
from graphs.runs.progress import end_of_line, line_of
from stages.records import Batch, Episode, Status

_LOOK_EVERY_S = 1.0
_MANY = 256
"""Last episodes that shares are of."""
_TRUNCATED = (Status.TRUNCATED_LENGTH, Status.TRUNCATED_TURNS)


@dataclass(frozen=True)
class EngineCounts:
    """What an engine has done so far.

    Attributes:
        sampled: tokens.
        busy: slots that took part in decode steps, summed.
        places: slots of all decode steps.
        waiting: requests without a slot, now.
    """

    sampled: int = 0
    busy: int = 0
    places: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class _Counts:
    """What grows, at one moment: rates are differences."""

    at_s: float
    episodes: int
    groups: int
    rows: int
    worker_s: float
    work_s: float
    engine: EngineCounts


class Health:
    """Watches one phase. Use ``measuring`` around the run.

    Args:
        folder: takes the rows; its counts are read.
        every_s: from one row to the next.
        elapsed_s: seconds since the program began, over all its starts.
        engine: counts of the engine; ``None`` where there is none.
        lag: of the loop.
        dropped: rows that loggers did not take so far.
    """

    def __init__(
        self,
        folder: RunFolder,
        every_s: float,
        elapsed_s: Callable[[], float],
        engine: Callable[[], EngineCounts] | None,
        lag: LoopLag,
        dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self._folder, self._every_s, self._elapsed_s = folder, every_s, elapsed_s
        self._engine, self._lag, self._dropped = engine, lag, dropped
        self._statuses: deque[Status] = deque(maxlen=_MANY)
        self._episodes = self._rows = 0
        self._ages = GroupAges()
        self._errors = ErrorFiles(folder.path)

    # --- what it hears ---

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Count episodes of the line, and rows that were cut to train on."""
        for value in values:
            if isinstance(value, Episode) and not node.startswith(HELDOUT):
                self._episodes += 1
                self._statuses.append(value.status)
            elif isinstance(value, Batch):
                self._rows += len(value.segments)

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        """Nothing: the folder keeps the counts of steps."""

    # --- what it tells ---

    @contextlib.contextmanager
    def measuring(self, run: Run) -> Generator[None]:
        """Tell rows while a run is at work, and at least one at its end."""
        task = asyncio.get_running_loop().create_task(self._measure(run))
        task.add_done_callback(_broken_into(self._folder))
        self._before = self._counts(run)
        self._told = False
        try:
            yield
        finally:
            task.cancel()
            self._look(run)
            if not self._told or self._counts(run).at_s - self._before.at_s >= self._every_s / 2:
                self._tell(run)

    async def _measure(self, run: Run) -> None:
        due = self._every_s
        while True:
            pause = min(_LOOK_EVERY_S, due)
            await asyncio.sleep(pause)
            self._look(run)
            due -= pause
            if due <= 0:
                self._tell(run)
                due = self._every_s

    def _look(self, run: Run) -> None:
        summary = run.summary()
        self._ages.see(summary)
        self._errors.see(summary)

    def _tell(self, run: Run) -> None:
        before, now = self._before, self._counts(run)
        self._before, self._told = now, True
        with contextlib.suppress(OSError):  # of a disk that is full the rows of stages tell, and end the run
            self._folder.tell(HEALTH, self.row(run, before, now))

    def row(self, run: Run, before: _Counts, now: _Counts) -> dict[str, Any]:
        """What is told of the time between two moments."""
        summary, line = run.summary(), line_of(run.plan)
        seconds, worker_s = now.at_s - before.at_s, now.worker_s - before.worker_s
        barriers = {name: groups for name, groups in summary.groups.items() if name in line}
        behind = [name for name in line if run.plan.spec.ancestors(name) & set(barriers)]
        memory = memory_bytes()
        folder = self._folder
        return {
            "seconds": self._elapsed_s(),
            "trajectories_per_minute": _rate(now.episodes - before.episodes, seconds) if folder.episodes else None,
            "groups_per_minute": _rate(now.groups - before.groups, seconds) if barriers else None,
            "examples_per_minute": _rate(now.rows - before.rows, seconds) if self._rows else None,
            "timed_out_share": self._share(lambda status: status is Status.TIMED_OUT),
            "truncated_share": self._share(lambda status: status in _TRUNCATED),
            "failed_share": self._share(lambda status: status.failed),
            "open_groups": sum(summary.open_groups[name] for name in barriers) if barriers else None,
            "half_filled_groups": sum(groups.half_filled for groups in barriers.values()) if barriers else None,
            "oldest_group_s": self._ages.oldest_s(summary, barriers),
            "ready_groups": sum(summary.nodes[name].depth for name in behind) if barriers else None,
            "goodput": folder.steps.trained_tokens / folder.num_sampled if folder.num_sampled else None,
            **_of_engine(before.engine, now.engine, seconds, there=self._engine is not None),
            "trainer_work_share": (now.work_s - before.work_s) / worker_s if worker_s > 0 else None,
            "host_memory_mb": memory / 1e6 if memory else None,
            "host_memory_share": memory / limit if memory and (limit := memory_limit()) else None,
            "loop_lag_ms": self._lag.max_ms_since(),
            "loggers_dropped": self._dropped(),
        }

    def _counts(self, run: Run) -> _Counts:
        summary = run.summary()
        sink = summary.nodes[end_of_line(run.plan)]
        return _Counts(
            at_s=summary.seconds,
            episodes=self._episodes,
            groups=sum(summary.nodes[name].emitted for name in line_of(run.plan) if name in summary.groups),
            rows=self._rows,
            worker_s=sink.seconds,
            work_s=sink.seconds * sink.shares["work"],
            engine=EngineCounts() if self._engine is None else self._engine(),
        )

    def _share(self, counts: Callable[[Status], bool]) -> float | None:
        return sum(map(counts, self._statuses)) / len(self._statuses) if self._statuses else None


class GroupAges:
    """How old open groups are, from how many were opened by when: groups are opened in the order of their birth."""

    def __init__(self) -> None:
        self._opened: dict[str, tuple[list[int], list[float]]] = {}

    def see(self, summary: Summary) -> None:
        """Note how many were opened by now, and forget what is of no open one."""
        for name, groups in summary.groups.items():
            counts, times = self._opened.setdefault(name, ([], []))
            if not counts or groups.opened > counts[-1]:
                counts.append(groups.opened)
                times.append(summary.seconds)
            done = bisect_right(counts, groups.opened if groups.oldest is None else groups.oldest)
            del counts[: max(done - 1, 0)], times[: max(done - 1, 0)]

    def oldest_s(self, summary: Summary, barriers: Mapping[str, Any]) -> float | None:
        """Age of the oldest open group of these barriers; ``None`` where none is open."""
        found = [self._age_s(summary, name) for name in barriers]
        return max((age for age in found if age is not None), default=None)

    def _age_s(self, summary: Summary, name: str) -> float | None:
        oldest = summary.groups[name].oldest
        if oldest is None or name not in self._opened:
            return None
        counts, times = self._opened[name]
        at = bisect_right(counts, oldest)
        return summary.seconds - times[min(at, len(times) - 1)]


def memory_bytes() -> int | None:
    """Memory that the process has now; ``None`` where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def memory_limit() -> int | None:
    """Memory that the process may have: that of its control group, or of the machine."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    with contextlib.suppress(OSError, ValueError, IndexError):
        found.append(int(Path("/proc/meminfo").read_text().split()[1]) * 1024)
    return min(found, default=None)


def _of_engine(before: EngineCounts, now: EngineCounts, seconds: float, *, there: bool) -> dict[str, Any]:
    places = now.places - before.places
    return {
        "sampled_tokens_per_second": _rate(now.sampled - before.sampled, seconds, per_s=1.0) if there else None,
        "engine_utilisation": (now.busy - before.busy) / places if places else None,
        "engine_waiting": now.waiting if there else None,
    }


def _rate(count: int, seconds: float, per_s: float = 60.0) -> float | None:
    return count / seconds * per_s if seconds > 0 else None


def _broken_into(folder: RunFolder) -> Callable[["asyncio.Task[None]"], None]:
    """Say where measuring broke; the run goes on."""

    def done(task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            folder.tell(HEALTH, {"warning": f"health is not measured any more: {error!r}"})

    return done

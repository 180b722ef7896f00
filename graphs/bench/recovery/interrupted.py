"""Interrupts a training of real processes, has it gone on with, and looks at what came of it."""

import os
import signal
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import graphs
from flow.saving import newest
from flow.testing import Process, Start, processes
from graphs.bench.recovery.executions import executed_twice, made_again, trained
from graphs.bench.recovery.left import children_of, files_in, left_of, partial_in
from graphs.bench.recovery.program import InterruptedConfig
from graphs.runs.equal import doubled, num_arrays, unequal, unequal_ends
from graphs.runs.progress import read_progress

EVERY = 2
"""Steps from one commit to the next."""
_RUN = Path("runs") / "it"
_PROGRAM = f"{Path(__file__).with_name('program.py')}:train"
"""What the processes run, by its file: none of them is started by importing the command line here."""
SUSPENDED = 130
"""Exit status of a training that was asked to end, and saved itself."""


@dataclass(frozen=True)
class Interruption:
    """Where a training is interrupted, each time in the middle of all times that it comes there in its reinforcement learning.

    Attributes:
        during: ``rollout``, ``training``, ``checkpoint write``, ``weight sync``.
        what: is being done there.
        point: at which it dies of SIGKILL; empty for SIGTERM while episodes are under way, which saves first.
    """

    during: str
    what: str
    point: str


TAKEN = "step.given"
"""Point at which a trainer is given a group; the warm start comes to no such point."""
INTERRUPTIONS: tuple[Interruption, ...] = (
    Interruption("rollout", "an episode has ended and is not noted", "journal.append"),
    Interruption("training", "a group is taken into the step", TAKEN),
    Interruption("training", "the update is made, nothing of it published", "step.trained"),
    Interruption("checkpoint write", "the arrays are on the disk, not the rest", "commit.saved"),
    Interruption("checkpoint write", "the commit has its name, the run goes on", "commit.renamed"),
    Interruption("weight sync", "the engine is given new weights", "swap.begin"),
    Interruption("rollout", "preempted by SIGTERM, which saves first", ""),
)


@dataclass(frozen=True)
class Whole:
    """The training that nobody interrupts.

    Attributes:
        process: at its end.
        points: that it came to, in order.
        begun: executions that it began.
        num_steps: steps that it trained.
        seconds: from its start to its end.
        opening_s: from its start to its first episode: loading, compiling, the warm start.
        children: processes that it had started and that were running when an episode ended.
        arrays: in its last commit.
    """

    process: Process
    points: tuple[str, ...]
    begun: int
    num_steps: int
    seconds: float
    opening_s: float
    children: int
    arrays: int


@dataclass(frozen=True)
class Recovered:
    """A training that was interrupted and gone on with.

    Attributes:
        interruption: where.
        statuses: of the two processes.
        differences: between it and the training that nobody interrupts: logs, scores, counts and arrays, a line each.
        arrays: of these, those of its last commit.
        steps_again: steps that were trained a second time.
        steps_behind: steps that were behind the latest whole commit when it was interrupted.
        begun_again: executions more than those of the training that nobody interrupts.
        ended_again: of these, executions of episodes that had ended before.
        twice: executions of one attempt more than once.
        doubled_rows: rows of the logs that are there twice.
        doubled_targets: what is trained in two steps, or twice in one.
        steps_equal: whether each step trained what it does uninterrupted.
        processes_left: that the killed process, or the one that went on, had started and that did not end.
        ended_s: seconds until all those were gone of the killed one.
        files_left: in the folder for temporary files, and half-written ones of the run.
        threads_left: at the end of the process that went on, beside its main one.
        seconds: of both processes together.
    """

    interruption: Interruption
    statuses: tuple[int, int]
    differences: Sequence[str]
    arrays: Sequence[str]
    steps_again: int
    steps_behind: int
    begun_again: int
    ended_again: int
    twice: int
    doubled_rows: int
    doubled_targets: int
    steps_equal: bool
    processes_left: int
    ended_s: float
    files_left: Sequence[str]
    threads_left: Sequence[str]
    seconds: float


@dataclass(frozen=True)
class Ground:
    """Where trainings are interrupted.

    Attributes:
        folder: a temporary one; each training has its own in it.
        temporary: where the processes put temporary files.
        start: starts a process.
    """

    folder: Path
    temporary: Path
    start: Start


def command_of(config: InterruptedConfig) -> list[str]:
    """What each process is asked for: begin the training, or go on with it."""
    settings = [f"--{name.replace('_', '-')}={value}" for name, value in config.model_dump().items()]
    options = {"name": "it", "resume": "auto", "checkpoint-every": EVERY, "keep": 8, "trace-bytes": None}
    return ["run", _PROGRAM, *settings, *(f"--options.{name}={value}" for name, value in options.items())]


@contextmanager
def ground(config: InterruptedConfig) -> Generator[Ground]:
    """A temporary folder, and a process that forks those that are killed. Both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="headrace-recovery-") as name:
        folder = Path(name)
        temporary, compiled = folder / "tmp", folder / "compiled"
        temporary.mkdir()
        path = os.pathsep.join([str(Path(graphs.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        # What one process compiles, the next one reads: time lost is not all time to compile, as on the machine of a user.
        cached = {"JAX_COMPILATION_CACHE_DIR": str(compiled), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
        cached = {} if "JAX_COMPILATION_CACHE_DIR" in os.environ else cached
        environment = {"PYTHONPATH": path, "TMPDIR": str(temporary), **cached}
        with processes(["-m", "graphs.bench.recovery.child"], command_of(config), **environment) as start:
            yield Ground(folder, temporary, start)


def uninterrupted(here: Ground, name: str = "whole") -> Whole:
    """Run the training to its end.

    Raises:
        RuntimeError: it failed.
    """
    began = time.monotonic()
    process = here.start(here.folder / name)
    process.wait_for(lambda: bool(process.told("begun")), "an episode")
    opening_s = time.monotonic() - began
    process.wait_for(lambda: bool(process.told("ended")), "the end of an episode")
    children = len(children_of(process.folder))
    _check(process, process.wait(), 0)
    return Whole(
        process, tuple(process.points), len(process.told("begun")), len(trained(process)), time.monotonic() - began,
        opening_s, children, num_arrays(process.folder / _RUN),
    )  # fmt: skip


def unequal_wholes(one: Whole, other: Whole) -> list[str]:
    """What differs between two trainings that nobody interrupted, a line each."""
    steps = [] if trained(one.process) == trained(other.process) else ["steps: they trained other rows"]
    return steps + unequal(one.process.folder / _RUN, other.process.folder / _RUN)


def recovered(here: Ground, interruption: Interruption, whole: Whole, name: str) -> Recovered:
    """Interrupt a training, go on with it, and compare it.

    Args:
        here: where.
        interruption: when it is interrupted.
        whole: the one to compare with.
        name: of its folder.

    Raises:
        RuntimeError: a process ended otherwise than it was to.
    """
    folder, began = here.folder / name, time.monotonic()
    killed = _interrupted(here, interruption, whole, folder)
    killed_s = time.monotonic() - began
    left, ended_s = left_of(folder)
    behind = _steps_behind(folder)
    began = time.monotonic()
    process = here.start(folder)
    status = process.wait()
    _check(process, status, 0)
    seconds = killed_s + time.monotonic() - began
    left += left_of(folder)[0]
    targets = [name for line in trained(process) for name in line.split(" ")[1:]]
    run, other = folder / _RUN, whole.process.folder / _RUN
    return Recovered(
        interruption=interruption,
        statuses=(killed, status),
        differences=unequal(other, run),
        arrays=unequal_ends(other, run),
        steps_again=len(process.told("trained")) - len(trained(process)),
        steps_behind=behind,
        begun_again=len(process.told("begun")) - whole.begun,
        ended_again=len(made_again(process, "ended")) - len(made_again(whole.process, "ended")),
        twice=sum(executed_twice(process).values()),
        doubled_rows=len(doubled(run)),
        doubled_targets=len(targets) - len(set(targets)),
        steps_equal=trained(process) == trained(whole.process),
        processes_left=len(left),
        ended_s=ended_s,
        files_left=[*files_in(here.temporary), *partial_in(run)],
        threads_left=process.told("threads")[-1].split()[1:],
        seconds=seconds,
    )


def _interrupted(here: Ground, interruption: Interruption, whole: Whole, folder: Path) -> int:
    """Gives the status of the process that was interrupted."""
    if interruption.point:
        process = here.start(folder, die=(interruption.point, middle_of(whole.points, interruption.point)))
        status = process.wait()
        _check(process, status, -signal.SIGKILL)
        return status
    process = here.start(folder)
    process.wait_for(lambda: len(process.told("begun")) > whole.begun // 2, "half of the episodes")
    process.kill(signal.SIGTERM)
    status = process.wait()
    _check(process, status, SUSPENDED)
    return status


def middle_of(points: Sequence[str], point: str) -> int:
    """The number, from 1, of the middle one of all passes of a point after the first group was taken into a step."""
    first = points.index(TAKEN)
    before, after = points[:first].count(point), points[first:].count(point)
    return before + 1 + after // 2


def _steps_behind(folder: Path) -> int:
    """Steps that a killed training had made since what it can be gone on with from."""
    told = [line.split() for line in (folder / "executions").read_text().splitlines() if line.startswith("trained ")]
    commit = newest(folder / _RUN / "checkpoints")
    return int(told[-1][1]) - (0 if commit is None else read_progress(commit).step) if told else 0


def _check(process: Process, status: int, wanted: int) -> None:
    if status != wanted:
        raise RuntimeError(
            f"expected status {wanted} of a process, got {status}, in the experiment recovery; look at what it said:\n"
            f"{process.output[-4000:]}"
        )
